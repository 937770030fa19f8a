//! The initial values of module-scope variables.

use super::directives::{Declaration, Declarator, elements};
use super::expression::Value;
use super::{Kind, ParseError, Parser};
use crate::ptx::ast::{Init, Type};

/// The shape that nested braces follow.
struct Shape {
    ty: Type,
    /// How many elements a brace of each level may hold, from the outermost; `None` for no limit.
    capacities: Vec<Option<u64>>,
}

impl<'a> Parser<'a> {
    /// From behind the `=`.
    pub(super) fn initialiser(
        &mut self,
        declaration: &Declaration,
        declarator: &Declarator<'a>,
    ) -> Result<Vec<Init>, ParseError> {
        let dimensions = &declarator.dimensions;
        let levels = dimensions.len() + usize::from(declaration.width > 1);
        let capacities = (0..levels.max(1)).map(|level| match dimensions.get(level) {
            Some(None) => Some(None),
            // Products of the rest of the dimensions: no greater than the whole, which has been checked, unless one
            // of the dimensions is 0 or the first is open.
            _ => elements(dimensions.get(level..).unwrap_or(&[]), declaration.width).map(Some),
        });
        let capacities = capacities
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| self.error("too large an array"))?;
        let shape = Shape {
            ty: declaration.ty,
            capacities,
        };
        let mut values = Vec::new();
        if self.is(b'{') {
            self.nested_initialiser(&shape, 0, &mut values)?;
        } else if levels > 0 {
            return Err(self.expected("`{` before the values of an array"));
        } else {
            values.push(self.initial_value(shape.ty)?);
        }
        Ok(values)
    }

    /// The values in one pair of braces. The recursion ends with the dimensions, which are few.
    fn nested_initialiser(
        &mut self,
        shape: &Shape,
        level: usize,
        values: &mut Vec<Init>,
    ) -> Result<(), ParseError> {
        let start = values.len() as u64;
        // Elements so far, zeros at the end of inner braces included.
        let mut filled = 0;
        self.advance()?;
        let mut first = true;
        while !self.is(b'}') {
            if !first {
                self.expect(b',', "`,` or `}` after an initial value")?;
            }
            first = false;
            let inner = self
                .is(b'{')
                .then(|| shape.capacities.get(level + 1).copied().flatten());
            let length = match inner {
                Some(None) => {
                    return Err(self.error("braces nested deeper than the array's dimensions"));
                }
                Some(Some(length)) => length,
                None => 1,
            };
            let fits = shape.capacities[level]
                .is_none_or(|most| length <= most && filled <= most - length);
            if !fits || (inner.is_some() && !u64::is_multiple_of(filled, length.max(1))) {
                return Err(self.error("more initial values than the array has elements here"));
            }
            self.pad(values, start + filled)?;
            if inner.is_some() {
                self.nested_initialiser(shape, level + 1, values)?;
            } else {
                values.push(self.initial_value(shape.ty)?);
            }
            let next = filled
                .checked_add(length)
                .filter(|next| start.checked_add(*next).is_some());
            filled = next.ok_or_else(|| self.error("too large an array"))?;
        }
        self.advance()?;
        // An array without a size is as long as its values, whole rows included.
        if shape.capacities[level].is_none() && filled > 0 {
            self.pad(values, start + filled)?;
        }
        Ok(())
    }

    /// Fills up with zeros.
    fn pad(&mut self, values: &mut Vec<Init>, length: u64) -> Result<(), ParseError> {
        let missing = length.saturating_sub(values.len() as u64);
        if missing == 0 {
            return Ok(());
        }
        match self.padding_left.checked_sub(missing) {
            Some(left) => self.padding_left = left,
            None => {
                return Err(
                    self.error("initialisers that leave out too many elements between others")
                );
            }
        }
        // It fits memory as the text does.
        values.resize(values.len() + missing as usize, Init::Bits(0));
        Ok(())
    }

    fn initial_value(&mut self, ty: Type) -> Result<Init, ParseError> {
        let first = self.current;
        let word = self.word(first);
        if first.kind == Kind::Word && word != "WARP_SZ" {
            if !matches!(
                ty,
                Type::B32 | Type::U32 | Type::S32 | Type::B64 | Type::U64 | Type::S64
            ) {
                return Err(self.error(
                    "an address as the initial value of a type that is not of 32 or 64 bits",
                ));
            }
            return self.initial_address(u64::MAX);
        }
        let value = self.expression()?;
        if self.take(b'(')? {
            // `0xFF00(variable)`: one byte of an address.
            let mask = value.integer().filter(|&mask| {
                mask.checked_shr(mask.trailing_zeros()) == Some(0xff)
                    && mask.trailing_zeros().is_multiple_of(8)
            });
            let Some(mask) = mask else {
                let message = "a mask must be 0xFF at one of the eight bytes of an address";
                return Err(self.error_at(first, format!("`{}`: {message}", super::shown(word))));
            };
            if ty.size() != 1 {
                return Err(self.error_at(
                    first,
                    "a byte of an address where the type is no byte".to_owned(),
                ));
            }
            let value = self.initial_address(mask)?;
            self.expect(b')', "`)` after a masked address")?;
            return Ok(value);
        }
        match bits(ty, value) {
            Some(bits) => Ok(Init::Bits(bits)),
            None => Err(self.error_at(
                first,
                "a float as the initial value of an integer".to_owned(),
            )),
        }
    }

    /// `x`, `x+4`, `generic(x)+4`.
    fn initial_address(&mut self, mask: u64) -> Result<Init, ParseError> {
        let word = self.word(self.current);
        let generic = word == "generic" && !self.names.contains_key(word);
        let (symbol, mut offset) = if generic {
            self.advance()?;
            self.expect(b'(', "`(` after `generic`")?;
            let inner = self.symbol_and_offset()?;
            self.expect(b')', "`)` after `generic(`")?;
            inner
        } else {
            self.symbol_and_offset()?
        };
        if generic {
            offset = offset.wrapping_add(self.offset()?);
        }
        Ok(Init::Address {
            symbol,
            offset,
            generic,
            mask,
        })
    }

    fn symbol_and_offset(&mut self) -> Result<(crate::ptx::ast::Symbol, i64), ParseError> {
        let (name, token) = self.name("the name of a variable or function")?;
        let Some(&symbol) = self.names.get(name) else {
            let message = format!(
                "`{}` is no variable or function declared before this",
                super::shown(name)
            );
            return Err(self.error_at(token, message));
        };
        Ok((symbol, self.offset()?))
    }

    /// `+4`, `-4`, `+-4` or nothing.
    pub(super) fn offset(&mut self) -> Result<i64, ParseError> {
        if self.is(b'+') || self.is(b'-') {
            // The sign is read as that of the first operand: the sum is the same.
            Ok(self.integer_expression("an offset in bytes")? as i64)
        } else {
            Ok(0)
        }
    }
}

/// The bits of an element of this type. A float literal of the type's width initialises an untyped element too.
fn bits(ty: Type, value: Value) -> Option<u64> {
    Some(match (ty, value) {
        (Type::F32 | Type::B32, Value::Float32(bits)) => u64::from(bits),
        (Type::B64, Value::Float64(value)) => value.to_bits(),
        (Type::F32, value) => u64::from((value.float() as f32).to_bits()),
        (Type::F64, value) => value.float().to_bits(),
        (_, value) => {
            let mask = u64::MAX >> (64 - 8 * ty.size().min(8));
            value.integer()? & mask
        }
    })
}

//! Numeric literals and constant expressions.

use super::{Kind, MAX_DEPTH, ParseError, Parser};

/// The value of a constant expression. Integers are signed unless they do not fit or a `U` or cast says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    /// The bits of a `0f` literal; arithmetic turns it into a double.
    Float32(u32),
    Float64(f64),
}

impl Value {
    /// The 64 bits of an integer.
    pub(super) fn integer(self) -> Option<u64> {
        match self {
            Value::Signed(value) => Some(value as u64),
            Value::Unsigned(value) => Some(value),
            Value::Float32(_) | Value::Float64(_) => None,
        }
    }

    /// As a double.
    pub(super) fn float(self) -> f64 {
        match self {
            Value::Signed(value) => value as f64,
            Value::Unsigned(value) => value as f64,
            Value::Float32(bits) => f64::from(f32::from_bits(bits)),
            Value::Float64(value) => value,
        }
    }

    fn is_true(self) -> bool {
        self.integer()
            .map_or_else(|| self.float() != 0.0, |value| value != 0)
    }
}

/// The value of an integer literal: decimal, hexadecimal, octal or binary, with or without `U`.
pub(super) fn integer_literal(text: &str) -> Option<u64> {
    let digits = text.strip_suffix(['U', 'u']).unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}

fn literal(text: &str) -> Option<Value> {
    let bits = |length: usize| {
        let digits = &text[2..];
        let valid = digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
    };
    match text.as_bytes() {
        [b'0', b'f' | b'F', ..] => return bits(8).map(|bits| Value::Float32(bits as u32)),
        [b'0', b'd' | b'D', ..] => {
            return bits(16).map(|bits| Value::Float64(f64::from_bits(bits)));
        }
        _ => {}
    }
    if let Some(value) = integer_literal(text) {
        let unsigned = text.ends_with(['U', 'u']);
        return Some(match i64::try_from(value) {
            Ok(value) if !unsigned => Value::Signed(value),
            _ => Value::Unsigned(value),
        });
    }
    let decimal =
        text.contains(['.', 'e', 'E']) && !text.starts_with("0x") && !text.starts_with("0X");
    let value = if decimal {
        text.parse::<f64>().ok()
    } else {
        None
    };
    value.filter(|value| value.is_finite()).map(Value::Float64)
}

/// The operators from the one that binds least.
fn precedence(kind: Kind) -> Option<u8> {
    Some(match kind {
        Kind::Or => 1,
        Kind::And => 2,
        Kind::Mark(b'|') => 3,
        Kind::Mark(b'^') => 4,
        Kind::Mark(b'&') => 5,
        Kind::Equal | Kind::NotEqual => 6,
        Kind::Mark(b'<' | b'>') | Kind::LessEqual | Kind::GreaterEqual => 7,
        Kind::ShiftLeft | Kind::ShiftRight => 8,
        Kind::Mark(b'+' | b'-') => 9,
        Kind::Mark(b'*' | b'/' | b'%') => 10,
        _ => return None,
    })
}

impl Parser<'_> {
    /// A constant expression.
    pub(super) fn expression(&mut self) -> Result<Value, ParseError> {
        self.deeper(|parser| {
            let condition = parser.binary(1)?;
            if !parser.take(b'?')? {
                return Ok(condition);
            }
            let yes = parser.expression()?;
            parser.expect(b':', "`:` of a `?` expression")?;
            let no = parser.expression()?;
            Ok(if condition.is_true() { yes } else { no })
        })
    }

    /// A constant expression whose value is an integer, as 64 bits of two's complement.
    pub(super) fn integer_expression(&mut self, expected: &str) -> Result<u64, ParseError> {
        let first = self.current;
        let value = self.expression()?;
        value
            .integer()
            .ok_or_else(|| self.error_at(first, format!("a float where {expected} was expected")))
    }

    fn binary(&mut self, least: u8) -> Result<Value, ParseError> {
        let mut left = self.unary()?;
        while let Some(binds) = precedence(self.current.kind).filter(|&binds| binds >= least) {
            let operator = self.current;
            self.advance()?;
            let right = self.deeper(|parser| parser.binary(binds + 1))?;
            left = apply(operator.kind, left, right).map_err(|reason| {
                self.error_at(
                    operator,
                    format!(
                        "`{}` in a constant expression: {reason}",
                        self.word(operator)
                    ),
                )
            })?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Value, ParseError> {
        let token = self.current;
        match token.kind {
            Kind::Number => {
                let Some(value) = literal(self.word(token)) else {
                    return Err(self.error("no number that PTX knows (or too large for its type)"));
                };
                self.advance()?;
                Ok(value)
            }
            Kind::Word if self.word(token) == "WARP_SZ" => {
                self.advance()?;
                Ok(Value::Signed(32))
            }
            Kind::Mark(b'(') => {
                self.advance()?;
                let cast = self.word(self.current);
                if matches!(cast, ".s64" | ".u64") {
                    self.advance()?;
                    self.expect(b')', "`)` after the type of a cast")?;
                    let value = self.deeper(Self::unary)?;
                    return Ok(convert(value, cast == ".s64"));
                }
                let value = self.expression()?;
                self.expect(b')', "`)`")?;
                Ok(value)
            }
            Kind::Mark(operator @ (b'-' | b'+' | b'~' | b'!')) => {
                self.advance()?;
                let value = self.deeper(Self::unary)?;
                Ok(match (operator, value) {
                    (b'+', value) => value,
                    (b'-', Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
                    (b'-', Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
                    (b'-', Value::Float32(bits)) => Value::Float32(bits ^ 0x8000_0000),
                    (b'-', Value::Float64(value)) => Value::Float64(-value),
                    (b'~', Value::Signed(value)) => Value::Signed(!value),
                    (b'~', Value::Unsigned(value)) => Value::Unsigned(!value),
                    (b'~', _) => return Err(self.error_at(token, "`~` of a float".to_owned())),
                    (_, value) => Value::Signed(i64::from(!value.is_true())),
                })
            }
            _ => Err(self.expected("an operand")),
        }
    }

    /// Runs a step of the recursion, unless it is too deep.
    fn deeper<R>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<R, ParseError>,
    ) -> Result<R, ParseError> {
        if self.expression_depth >= MAX_DEPTH {
            return Err(self.error("an expression nested too deeply"));
        }
        self.expression_depth += 1;
        let result = step(self);
        self.expression_depth -= 1;
        result
    }
}

fn convert(value: Value, signed: bool) -> Value {
    match (value.integer(), signed) {
        (Some(bits), true) => Value::Signed(bits as i64),
        (Some(bits), false) => Value::Unsigned(bits),
        (None, true) => Value::Signed(value.float() as i64),
        (None, false) => Value::Unsigned(value.float() as u64),
    }
}

fn apply(operator: Kind, left: Value, right: Value) -> Result<Value, &'static str> {
    let truth = |truth: bool| Ok(Value::Signed(i64::from(truth)));
    match operator {
        Kind::And => return truth(left.is_true() && right.is_true()),
        Kind::Or => return truth(left.is_true() || right.is_true()),
        _ => {}
    }
    let (Some(left_bits), Some(right_bits)) = (left.integer(), right.integer()) else {
        let (left, right) = (left.float(), right.float());
        return Ok(Value::Float64(match operator {
            Kind::Mark(b'+') => left + right,
            Kind::Mark(b'-') => left - right,
            Kind::Mark(b'*') => left * right,
            Kind::Mark(b'/') => left / right,
            Kind::Mark(b'<') => return truth(left < right),
            Kind::Mark(b'>') => return truth(left > right),
            Kind::LessEqual => return truth(left <= right),
            Kind::GreaterEqual => return truth(left >= right),
            Kind::Equal => return truth(left == right),
            Kind::NotEqual => return truth(left != right),
            _ => return Err("not an operation on floats"),
        }));
    };
    // A shift has the type of what is shifted; all else is unsigned if either side is.
    if matches!(operator, Kind::ShiftLeft | Kind::ShiftRight) {
        let count = u32::try_from(right_bits).unwrap_or(u32::MAX);
        let left_shift = operator == Kind::ShiftLeft;
        return Ok(match left {
            Value::Signed(value) if left_shift => {
                Value::Signed(value.checked_shl(count).unwrap_or(0))
            }
            Value::Signed(value) => Value::Signed(value >> count.min(63)),
            _ if left_shift => Value::Unsigned(left_bits.checked_shl(count).unwrap_or(0)),
            _ => Value::Unsigned(left_bits.checked_shr(count).unwrap_or(0)),
        });
    }
    let signed = matches!((left, right), (Value::Signed(_), Value::Signed(_)));
    let (a, b) = (left_bits, right_bits);
    let (signed_a, signed_b) = (a as i64, b as i64);
    let less = if signed { signed_a < signed_b } else { a < b };
    let bits = match operator {
        Kind::Mark(b'+') => a.wrapping_add(b),
        Kind::Mark(b'-') => a.wrapping_sub(b),
        Kind::Mark(b'*') => a.wrapping_mul(b),
        Kind::Mark(b'/' | b'%') if b == 0 => return Err("division by zero"),
        Kind::Mark(b'/') if signed => signed_a.wrapping_div(signed_b) as u64,
        Kind::Mark(b'/') => a / b,
        Kind::Mark(b'%') if signed => signed_a.wrapping_rem(signed_b) as u64,
        Kind::Mark(b'%') => a % b,
        Kind::Mark(b'&') => a & b,
        Kind::Mark(b'|') => a | b,
        Kind::Mark(b'^') => a ^ b,
        Kind::Mark(b'<') => return truth(less),
        Kind::Mark(b'>') => return truth(!less && a != b),
        Kind::LessEqual => return truth(less || a == b),
        Kind::GreaterEqual => return truth(!less),
        Kind::Equal => return truth(a == b),
        Kind::NotEqual => return truth(a != b),
        _ => return Err("not an operator of constant expressions"),
    };
    Ok(if signed {
        Value::Signed(bits as i64)
    } else {
        Value::Unsigned(bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Parser::new(text)
            .unwrap()
            .expression()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn literals_have_every_notation() {
        assert_eq!(value("0X2B7CU"), Value::Unsigned(0x2b7c));
        assert_eq!(value("0xffffffffffffffff"), Value::Unsigned(u64::MAX));
        assert_eq!(value("0xffffffff"), Value::Signed(0xffff_ffff));
        assert_eq!(value("017"), Value::Signed(15));
        assert_eq!(value("0b1011U"), Value::Unsigned(11));
        assert_eq!(value("0"), Value::Signed(0));
        assert_eq!(value("0U"), Value::Unsigned(0));
        assert_eq!(value("0f3F800000"), Value::Float32(0x3f80_0000));
        assert_eq!(value("0Fbf800000"), Value::Float32(0xbf80_0000));
        assert_eq!(value("0d3FF0000000000000"), Value::Float64(1.0));
        assert_eq!(value("0D3FF0000000000000"), Value::Float64(1.0));
        assert_eq!(value("1.0"), Value::Float64(1.0));
        assert_eq!(value("1e-5"), Value::Float64(1e-5));
        assert_eq!(value("-2.5E+3"), Value::Float64(-2500.0));
        assert_eq!(value("-0f3F800000"), Value::Float32(0xbf80_0000));
    }

    #[test]
    fn malformed_literals_are_refused() {
        for text in [
            "0x",
            "0b",
            "0b2",
            "08",
            "12a",
            "0f3F8000",
            "0f3F8000000",
            "0d3FF",
            "18446744073709551616",
            "1e999",
            "0f",
            "0x1.5",
            "1.5.5",
            "0xg",
            "1UU",
            "0f+3F80000",
            "0U1",
        ] {
            let parsed = Parser::new(text).and_then(|mut parser| {
                let value = parser.expression()?;
                if parser.current.kind == Kind::End {
                    Ok(value)
                } else {
                    Err(parser.error("left"))
                }
            });
            assert!(parsed.is_err(), "{text}: {parsed:?}");
        }
    }

    #[test]
    fn operators_bind_and_type_as_in_c() {
        assert_eq!(value("1+2*3"), Value::Signed(7));
        assert_eq!(value("(1+2)*3"), Value::Signed(9));
        assert_eq!(value("10-3-2"), Value::Signed(5));
        assert_eq!(value("-7/2"), Value::Signed(-3));
        assert_eq!(value("-7 % 3"), Value::Signed(-1));
        assert_eq!(value("-1 < 0"), Value::Signed(1));
        assert_eq!(value("-1 < 0U"), Value::Signed(0));
        assert_eq!(value("-1 >> 1"), Value::Signed(-1));
        assert_eq!(value("(.u64)-1 >> 63"), Value::Unsigned(1));
        assert_eq!(value("(.s64)(2U-3)"), Value::Signed(-1));
        assert_eq!(value("1 << 64"), Value::Signed(0));
        assert_eq!(value("1 ? 2 : 0 ? 3 : 4"), Value::Signed(2));
        assert_eq!(value("0 ? 2 : 0 ? 3 : 4"), Value::Signed(4));
        assert_eq!(value("~0 & 0xff ^ 1 | 256"), Value::Signed(0x1fe));
        assert_eq!(value("!0 && 2 || 0"), Value::Signed(1));
        assert_eq!(value("WARP_SZ-1"), Value::Signed(31));
        assert_eq!(value("1.5*2+1"), Value::Float64(4.0));
        assert_eq!(value("+-4"), Value::Signed(-4));
        assert_eq!(value("-9223372036854775807-1"), Value::Signed(i64::MIN));
        assert_eq!(
            value("(-9223372036854775807-1)/-1"),
            Value::Signed(i64::MIN)
        );
    }

    #[test]
    fn nonsense_and_depth_are_errors() {
        for text in [
            "1/0", "1 % 0", "~1.5", "1.5 << 2", "1 ? 2", "(1", "1 +", "", "(.s32)1", "x",
        ] {
            assert!(Parser::new(text).unwrap().expression().is_err(), "{text}");
        }
        for unit in ["(", "-", "1?", "(.s64)", "1||1&&1|1^1&1==1<1<<1+1*("] {
            let text = unit.repeat(100_000);
            let error = Parser::new(&text).unwrap().expression().unwrap_err();
            assert!(error.message.contains("deep"), "{unit}: {error}");
        }
        // A long chain is not deep.
        let sum = format!("0{}", "+1".repeat(100_000));
        assert_eq!(value(&sum), Value::Signed(100_000));
    }
}

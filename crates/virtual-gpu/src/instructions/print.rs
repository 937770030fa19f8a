//! Functions that a kernel calls but does not contain: `printf`, the failure of `assert`, and the device's heap.

use std::ffi::{CString, c_char};

use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Inst};
use crate::fault::FaultKind;
use crate::instructions::memory::Access;
use crate::ptx::ast::Space;

/// A function that a kernel calls but does not contain: from the bytes of its arguments to those of its result.
pub(crate) type ExternCall = fn(&mut Core<'_>, &Inst, usize, &[&[u8]]) -> Result<Vec<u8>, Flow>;

/// The function of that name.
pub(crate) fn extern_call(name: &str) -> Option<ExternCall> {
    Some(match name {
        "vprintf" => print,
        "__assertfail" => assert_failed,
        "malloc" => allocate,
        "free" => free,
        _ => return None,
    })
}

/// The longest text that is read from device memory.
const LONGEST: usize = 1 << 16;

/// The largest width or precision of a conversion.
const WIDEST: i32 = 4096;

/// The most arguments, as in hardware.
const MOST_ARGUMENTS: usize = 32;

/// `vprintf(format, arguments)`: the number of arguments.
fn print(core: &mut Core<'_>, inst: &Inst, lane: usize, args: &[&[u8]]) -> Result<Vec<u8>, Flow> {
    let (format, arguments) = (argument(args, 0), argument(args, 1));
    if format == 0 {
        return Ok((-1i32).to_le_bytes().to_vec());
    }
    let format = text(core, inst, lane, format)?;
    let mut arguments = Arguments {
        core,
        inst,
        lane,
        address: arguments,
        count: 0,
    };
    let mut out = Vec::new();
    render(&format, &mut arguments, &mut out)?;
    let count = arguments.count as i32;
    core.launch.host.print(&String::from_utf8_lossy(&out));
    Ok(count.to_le_bytes().to_vec())
}

/// `__assertfail(message, file, line, function, size of a character)`
fn assert_failed(
    core: &mut Core<'_>,
    inst: &Inst,
    lane: usize,
    args: &[&[u8]],
) -> Result<Vec<u8>, Flow> {
    let mut part = |index: usize| match argument(args, index) {
        0 => Ok("?".to_string()),
        address => Ok(String::from_utf8_lossy(&text(core, inst, lane, address)?).into_owned()),
    };
    let (message, file, function) = (part(0)?, part(1)?, part(3)?);
    let line = argument(args, 2);
    let message = format!("{file}:{line}: {function}: assertion `{message}` failed");
    Err(core.fail(inst, lane, FaultKind::Assert, message))
}

/// `malloc(size)`: null if the heap is full.
fn allocate(
    core: &mut Core<'_>,
    _inst: &Inst,
    _lane: usize,
    args: &[&[u8]],
) -> Result<Vec<u8>, Flow> {
    let address = core.launch.memory.allocate(argument(args, 0));
    Ok(address.unwrap_or(0).to_le_bytes().to_vec())
}

/// `free(pointer)`: of null, or of what malloc returned.
fn free(core: &mut Core<'_>, inst: &Inst, lane: usize, args: &[&[u8]]) -> Result<Vec<u8>, Flow> {
    match argument(args, 0) {
        0 => Ok(Vec::new()),
        address => match core.launch.memory.free(address) {
            Ok(()) => Ok(Vec::new()),
            Err(message) => Err(core.fail(inst, lane, FaultKind::IllegalAddress, message)),
        },
    }
}

/// An argument of up to 64 bits; 0 if there is none.
fn argument(args: &[&[u8]], index: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes
        .iter_mut()
        .zip(args.get(index).copied().unwrap_or_default())
    {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

/// The zero-terminated text at a generic address.
fn text(core: &mut Core<'_>, inst: &Inst, lane: usize, address: u64) -> Result<Vec<u8>, Flow> {
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let place = address.wrapping_add(text.len() as u64);
        let pointer = core.locate(inst, lane, Space::Generic, place, 1, 1, Access::Read)?;
        // SAFETY: located just now.
        match unsafe { pointer.read() } {
            0 => return Ok(text),
            byte => text.push(byte),
        }
    }
    let message = format!("the text at {address:#x} has no end within {LONGEST} bytes");
    Err(core.fail(inst, lane, FaultKind::IllegalAddress, message))
}

/// Where conversions take their values from.
trait Source {
    /// The next 4 bytes.
    fn word(&mut self) -> Result<u32, Flow>;
    /// The next 8 bytes, aligned to 8.
    fn long(&mut self) -> Result<u64, Flow>;
    /// The text at an address.
    fn text(&mut self, address: u64) -> Result<Vec<u8>, Flow>;
}

/// Arguments in memory, packed with their natural alignment.
struct Arguments<'c, 'l> {
    core: &'c mut Core<'l>,
    inst: &'c Inst,
    lane: usize,
    address: u64,
    count: usize,
}

impl Arguments<'_, '_> {
    fn next(&mut self, size: u32) -> Result<*mut u8, Flow> {
        if self.count == MOST_ARGUMENTS {
            let message = format!("printf takes at most {MOST_ARGUMENTS} arguments");
            return Err(self.core.fail(
                self.inst,
                self.lane,
                FaultKind::IllegalInstruction,
                message,
            ));
        }
        self.count += 1;
        let place = self
            .address
            .checked_next_multiple_of(u64::from(size))
            .unwrap_or(u64::MAX);
        self.address = place.wrapping_add(u64::from(size));
        self.core.locate(
            self.inst,
            self.lane,
            Space::Generic,
            place,
            size,
            1,
            Access::Read,
        )
    }
}

impl Source for Arguments<'_, '_> {
    fn word(&mut self) -> Result<u32, Flow> {
        let pointer = self.next(4)?;
        // SAFETY: located just now.
        Ok(unsafe { pointer.cast::<u32>().read_unaligned() })
    }

    fn long(&mut self) -> Result<u64, Flow> {
        let pointer = self.next(8)?;
        // SAFETY: located just now.
        Ok(unsafe { pointer.cast::<u64>().read_unaligned() })
    }

    fn text(&mut self, address: u64) -> Result<Vec<u8>, Flow> {
        if address == 0 {
            return Ok(b"(null)".to_vec());
        }
        text(self.core, self.inst, self.lane, address)
    }
}

/// One conversion of a format.
#[derive(Default)]
struct Conversion {
    flags: Vec<u8>,
    width: Option<i32>,
    precision: Option<i32>,
    /// Bytes of an integer.
    size: u32,
}

impl Conversion {
    /// The conversion in C's notation.
    fn notation(&self, length: &str, letter: u8) -> CString {
        let mut notation = b"%".to_vec();
        notation.extend(&self.flags);
        if let Some(width) = self.width {
            notation.extend(width.to_string().bytes());
        }
        if let Some(precision) = self.precision {
            notation.push(b'.');
            notation.extend(precision.to_string().bytes());
        }
        notation.extend(length.bytes());
        notation.push(letter);
        CString::new(notation).unwrap_or_default()
    }

    fn set_width(&mut self, width: i32) {
        if width < 0 {
            self.flags.push(b'-');
        }
        self.width = Some(width.saturating_abs().min(WIDEST));
    }

    /// Pads a text.
    fn pad(&self, text: &[u8], out: &mut Vec<u8>) {
        let fill = (self.width.unwrap_or(0) as usize).saturating_sub(text.len());
        let left = self.flags.contains(&b'-');
        out.extend(std::iter::repeat_n(b' ', if left { 0 } else { fill }));
        out.extend(text);
        out.extend(std::iter::repeat_n(b' ', if left { fill } else { 0 }));
    }
}

/// Appends what `printf` makes of a format. A conversion that C does not have is copied as it is.
fn render(format: &[u8], source: &mut impl Source, out: &mut Vec<u8>) -> Result<(), Flow> {
    let mut at = 0;
    while at < format.len() {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        let start = at;
        at += 1;
        let mut conversion = Conversion {
            size: 4,
            ..Conversion::default()
        };
        while let Some(&flag) = format.get(at).filter(|flag| b"-+ #0".contains(flag)) {
            if !conversion.flags.contains(&flag) {
                conversion.flags.push(flag);
            }
            at += 1;
        }
        if format.get(at) == Some(&b'*') {
            conversion.set_width(source.word()? as i32);
            at += 1;
        } else if let Some(width) = number(format, &mut at) {
            conversion.set_width(width);
        }
        if format.get(at) == Some(&b'.') {
            at += 1;
            if format.get(at) == Some(&b'*') {
                let precision = source.word()? as i32;
                conversion.precision = (precision >= 0).then(|| precision.min(WIDEST));
                at += 1;
            } else {
                conversion.precision = Some(number(format, &mut at).unwrap_or(0).min(WIDEST));
            }
        }
        while let Some(&length) = format.get(at).filter(|length| b"hlLqjzt".contains(length)) {
            conversion.size = match (length, conversion.size) {
                (b'h', 2) => 1,
                (b'h', _) => 2,
                _ => 8,
            };
            at += 1;
        }
        let Some(&letter) = format.get(at) else {
            out.extend(&format[start..]);
            return Ok(());
        };
        at += 1;
        convert(&conversion, letter, &format[start..at], source, out)?;
    }
    Ok(())
}

/// A decimal number at a place, which moves behind it.
fn number(format: &[u8], at: &mut usize) -> Option<i32> {
    let digits = format[*at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let value = format[*at..*at + digits].iter().fold(0i32, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i32::from(digit - b'0'))
    });
    *at += digits;
    (digits > 0).then_some(value)
}

fn convert(
    conversion: &Conversion,
    letter: u8,
    whole: &[u8],
    source: &mut impl Source,
    out: &mut Vec<u8>,
) -> Result<(), Flow> {
    match letter {
        b'%' => out.push(b'%'),
        b'd' | b'i' => {
            let value = match conversion.size {
                8 => source.long()? as i64,
                2 => i64::from(source.word()? as i16),
                1 => i64::from(source.word()? as i8),
                _ => i64::from(source.word()? as i32),
            };
            format_integer(&conversion.notation("ll", letter), value as u64, out);
        }
        b'u' | b'x' | b'X' | b'o' => {
            let value = match conversion.size {
                8 => source.long()?,
                2 => u64::from(source.word()? as u16),
                1 => u64::from(source.word()? as u8),
                _ => u64::from(source.word()?),
            };
            format_integer(&conversion.notation("ll", letter), value, out);
        }
        b'c' => {
            let byte = source.word()? as u8;
            conversion.pad(&[byte], out);
        }
        b's' => {
            let address = source.long()?;
            let mut text = source.text(address)?;
            text.truncate(
                conversion
                    .precision
                    .map_or(usize::MAX, |precision| precision as usize),
            );
            conversion.pad(&text, out);
        }
        b'p' => {
            let address = source.long()?;
            conversion.pad(format!("{address:#x}").as_bytes(), out);
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_bits(source.long()?);
            format_float(&conversion.notation("", letter), value, out);
        }
        // Writes nothing and stores nothing, as on a device.
        b'n' => {
            source.long()?;
        }
        _ => out.extend(whole),
    }
    Ok(())
}

/// Room for a number: the widest, with all digits of the largest f64.
const ROOM: usize = 2 * WIDEST as usize + 512;

fn format_integer(notation: &CString, value: u64, out: &mut Vec<u8>) {
    let mut room = vec![0u8; ROOM];
    // SAFETY: the notation has one conversion, of a `long long`; no more than `ROOM` bytes are written.
    let length = unsafe {
        libc::snprintf(
            room.as_mut_ptr().cast::<c_char>(),
            ROOM,
            notation.as_ptr(),
            value,
        )
    };
    out.extend(&room[..usize::try_from(length).unwrap_or(0).min(ROOM - 1)]);
}

fn format_float(notation: &CString, value: f64, out: &mut Vec<u8>) {
    let mut room = vec![0u8; ROOM];
    // SAFETY: the notation has one conversion, of a `double`; no more than `ROOM` bytes are written.
    let length = unsafe {
        libc::snprintf(
            room.as_mut_ptr().cast::<c_char>(),
            ROOM,
            notation.as_ptr(),
            value,
        )
    };
    out.extend(&room[..usize::try_from(length).unwrap_or(0).min(ROOM - 1)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Argument {
        Word(u32),
        Long(u64),
        Text(&'static str),
    }

    struct List(Vec<Argument>);

    impl List {
        fn next(&mut self) -> Argument {
            assert!(!self.0.is_empty(), "an argument too many is taken");
            self.0.remove(0)
        }
    }

    impl Source for List {
        fn word(&mut self) -> Result<u32, Flow> {
            match self.next() {
                Argument::Word(value) => Ok(value),
                _ => panic!("4 bytes are taken of another argument"),
            }
        }
        fn long(&mut self) -> Result<u64, Flow> {
            match self.next() {
                Argument::Long(value) => Ok(value),
                Argument::Text(text) => {
                    self.0.insert(0, Argument::Text(text));
                    Ok(1)
                }
                Argument::Word(_) => panic!("8 bytes are taken of a word"),
            }
        }
        fn text(&mut self, _address: u64) -> Result<Vec<u8>, Flow> {
            match self.next() {
                Argument::Text(text) => Ok(text.as_bytes().to_vec()),
                _ => panic!("no text"),
            }
        }
    }

    fn printed(format: &str, arguments: Vec<Argument>) -> String {
        let mut list = List(arguments);
        let mut out = Vec::new();
        render(format.as_bytes(), &mut list, &mut out).unwrap();
        assert!(list.0.is_empty(), "{format}: an argument is left");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn conversions_are_those_of_c() {
        use Argument::{Long, Text, Word};
        let float = |value: f64| Long(value.to_bits());
        let cases = [
            ("a %d b", vec![Word(-5i32 as u32)], "a -5 b"),
            (
                "%5d|%-5d|%05d|%+d",
                vec![Word(42), Word(42), Word(42), Word(42)],
                "   42|42   |00042|+42",
            ),
            (
                "%u %x %X %#x %o",
                vec![Word(u32::MAX), Word(255), Word(255), Word(255), Word(8)],
                "4294967295 ff FF 0xff 10",
            ),
            (
                "%ld %lld %lu %llx",
                vec![
                    Long(-1i64 as u64),
                    Long(-2i64 as u64),
                    Long(7),
                    Long(1 << 40),
                ],
                "-1 -2 7 10000000000",
            ),
            (
                "%hhd %hd %hhu %zu",
                vec![Word(0x1ff), Word(0x1_8000), Word(0x1ff), Long(9)],
                "-1 -32768 255 9",
            ),
            ("%c%c", vec![Word(65), Word(66)], "AB"),
            (
                "[%s] [%6s] [%-6s] [%.2s]",
                vec![Text("abc"), Text("abc"), Text("abc"), Text("abc")],
                "[abc] [   abc] [abc   ] [ab]",
            ),
            ("%p", vec![Long(0x1234)], "0x1234"),
            (
                "%f %.2f %e %g %G",
                vec![
                    float(1.5),
                    float(2.346),
                    float(12345.678),
                    float(1e-7),
                    float(1e20),
                ],
                "1.500000 2.35 1.234568e+04 1e-07 1E+20",
            ),
            ("%a", vec![float(1.0)], "0x1p+0"),
            (
                "%f %F %e",
                vec![
                    float(f64::INFINITY),
                    float(f64::NEG_INFINITY),
                    float(f64::NAN),
                ],
                "inf -INF nan",
            ),
            (
                "%*d|%-*d|%.*f",
                vec![Word(4), Word(1), Word(4), Word(1), Word(1), float(0.25)],
                "   1|1   |0.2",
            ),
            ("100%% %k %", vec![], "100% %k %"),
        ];
        for (format, arguments, expected) in cases {
            assert_eq!(printed(format, arguments), expected, "{format}");
        }
        let wide = printed("%999999999d", vec![Word(1)]);
        assert_eq!(wide.len(), WIDEST as usize);
    }

    #[test]
    fn kernels_print_and_assert() {
        use crate::instructions::trial::Trial;
        // The format is "%d %s %.2f\n", and "word" lies behind it.
        let call = "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a+0], %l0; st.param.b64 [b+0], %l1; \
                    call.uni (r), vprintf, (a, b); ld.param.b32 %o0, [r+0]; }";
        let body = format!(
            ".local .align 8 .b8 depot[24];\nmov.u32 %x0, %tid.x;\nmov.u64 %l2, depot;\ncvta.local.u64 %l1, %l2;\n\
             st.local.u32 [%l2], %x0;\nmov.u64 %l0, text;\nadd.u64 %l3, %l0, 12;\nst.local.u64 [%l2+8], %l3;\n\
             mov.b64 %d0, 0d3FF4000000000000;\nst.local.f64 [%l2+16], %d0;\n{call}"
        );
        let mut trial = Trial::new(body);
        trial.threads = 2;
        trial.outputs = 1;
        let got = trial.done();
        assert_eq!(got.printed, "0 word 1.25\n1 word 1.25\n");
        assert_eq!(got.outputs[0], [3, 3]);
        let body = "mov.u64 %l0, text;\nadd.u64 %l1, %l0, 12;\nmov.b32 %x0, 7;\nmov.b64 %l2, 1;\n\
                    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; st.param.b64 [a], %l0; \
                    st.param.b64 [b], %l1; st.param.b32 [c], %x0; st.param.b64 [d], %l1; st.param.b64 [e], %l2; \
                    call.uni __assertfail, (a, b, c, d, e); }";
        let fault = Trial::new(body).fault();
        assert_eq!(fault.kind, FaultKind::Assert);
        assert!(
            fault
                .message
                .starts_with("word:7: word: assertion `%d %s %.2f\n` failed"),
            "{fault}"
        );
    }
}

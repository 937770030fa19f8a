//! A bundle: the kernels of one source, each a PTX text that stands by itself, for each of its targets, compressed.
//!
//! The line `//# NAME TARGET` starts a kernel's text; `fireclay_cuda::Library` reads it. Texts by kernel let a program give the
//! driver those alone that it launches: the driver's compiler takes longer over a whole file than most programs run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// The text of a bundle: what `targets` say, pairs of a compute capability and the compiler's PTX for it, after `first` and a hash
/// of the rest.
pub(super) fn bundle(first: &str, targets: &[(u32, String)]) -> Result<String, String> {
    let mut text = String::new();
    for (target, ptx) in targets {
        for (name, body) in kernels(ptx)? {
            text.push_str(&format!("//# {name} {target}\n{body}"));
        }
    }
    Ok(format!("{first}\n{}{text}", hash_line(&text)))
}

/// Whether a bundle starts with `first` and has been left as it was made.
pub(super) fn is_of(bundle: &str, first: &str) -> bool {
    let rest = bundle
        .strip_prefix(first)
        .and_then(|rest| rest.strip_prefix('\n'));
    let rest = rest.and_then(|rest| rest.split_once('\n'));
    rest.is_some_and(|(line, text)| hash_line(text).strip_suffix('\n') == Some(line))
}

fn hash_line(text: &str) -> String {
    format!(
        "// What follows has the hash {:016x}.\n",
        fnv1a(FNV_START, text.as_bytes())
    )
}

/// Where [`fnv1a`] starts.
pub(super) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The FNV-1a hash, 64 bits, of bytes after others.
pub(super) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A bundle as it is checked in.
pub(super) fn compressed(text: &str) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes());
    written
        .and_then(|()| encoder.finish())
        .map_err(|error| error.to_string())
}

/// A bundle's text from what is checked in.
pub(super) fn text(compressed: &[u8]) -> Result<String, String> {
    let mut text = String::new();
    let read = GzDecoder::new(compressed).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| error.to_string())
}

/// The texts of a bundle's kernels, by name and target.
pub(super) fn texts(bundle: &str) -> BTreeMap<(&str, u32), &str> {
    // Before the first kernel stands what the bundle was made from.
    let texts = bundle.split("\n//# ").skip(1).filter_map(|text| {
        let (head, body) = text.split_once('\n')?;
        let (name, target) = head.split_once(' ')?;
        Some(((name, target.parse().ok()?), body.trim_end()))
    });
    texts.collect()
}

/// The lines of each kernel of a bundle, sorted, without the numbers of registers and labels: what stays the same when the compiler
/// orders instructions otherwise.
pub(super) fn instructions(bundle: &str) -> BTreeMap<(&str, u32), Vec<String>> {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(without_numbers).collect();
        lines.sort_unstable();
        lines
    };
    let texts = texts(bundle).into_iter();
    texts.map(|(kernel, text)| (kernel, sorted(text))).collect()
}

/// A line of PTX with `%r12` as `%r` and `$L__BB0_3` as `$L`.
fn without_numbers(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        plain.push(c);
        if c == '%' || c == '$' {
            while let Some(letter) = rest.next_if(char::is_ascii_alphabetic) {
                plain.push(letter);
            }
            while rest
                .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
                .is_some()
            {}
        }
    }
    plain
}

/// The kernels of a bundle as modules, one for each target.
pub(super) fn modules(bundle: &str) -> Result<Vec<(u32, String)>, String> {
    let mut modules: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for ((_, target), text) in texts(bundle) {
        let module = modules.entry(target).or_default();
        for part in parts(text)? {
            if module.iter().all(|known| known.text != part.text) {
                module.push(part);
            }
        }
    }
    let joined = modules.into_iter().map(|(target, mut parts)| {
        parts.sort_by_key(|part| part.kind);
        let text = parts.into_iter().map(|part| part.text);
        (target, text.collect())
    });
    Ok(joined.collect())
}

/// The kernels of a PTX text: the name of each, and a text of it with the declarations that it needs.
pub(super) fn kernels(ptx: &str) -> Result<Vec<(String, String)>, String> {
    let parts = parts(ptx)?;
    let mut kernels = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let Some(name) = part.kernel() else {
            continue;
        };
        let mut needed = BTreeSet::from([at]);
        let mut open = vec![at];
        while let Some(user) = open.pop() {
            let words: BTreeSet<&str> = words(&parts[user].text).collect();
            for (other, part) in parts.iter().enumerate() {
                let wanted = part.name().is_some_and(|name| words.contains(name));
                if wanted && needed.insert(other) {
                    open.push(other);
                }
            }
        }
        let header = parts.iter().filter(|part| part.kind == Kind::Header);
        let own = needed.iter().map(|&at| &parts[at]);
        let body: String = header.chain(own).map(|part| part.text.as_str()).collect();
        kernels.push((name.to_owned(), body));
    }
    Ok(kernels)
}

/// A statement at the top of a module.
struct Part {
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Version, target, size of addresses.
    Header,
    Variable,
    Function,
}

impl Part {
    /// The name of the kernel that it is.
    fn kernel(&self) -> Option<&str> {
        if self.kind != Kind::Function {
            return None;
        }
        let (_, after) = self.text.split_once(".entry ")?;
        words(after).next()
    }

    /// What it declares.
    fn name(&self) -> Option<&str> {
        match self.kind {
            Kind::Header => None,
            Kind::Variable => {
                words(&self.text).find(|word| !word.starts_with(['.']) && !is_number(word))
            }
            Kind::Function => self.kernel().or_else(|| {
                let (_, after) = self.text.split_once(".func ")?;
                // What it returns stands in parentheses before its name.
                let after = match after.trim_start().strip_prefix('(') {
                    Some(returned) => returned.split_once(')')?.1,
                    None => after,
                };
                words(after).next()
            }),
        }
    }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// Names, directives and numbers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')))
        .filter(|word| !word.is_empty())
}

/// The statements of a module, in order.
fn parts(ptx: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let (mut text, mut depth) = (String::new(), 0);
    for line in ptx.lines() {
        // What the compiler says of itself in comments is not for the file.
        if line.trim_start().starts_with("//") || line.trim().is_empty() {
            continue;
        }
        text.push_str(line);
        text.push('\n');
        let count = |c: char| line.matches(c).count();
        depth += count('{');
        depth = (depth.checked_sub(count('}'))).ok_or("braces of the PTX do not match")?;
        let variable = [
            ".global",
            ".const",
            ".shared",
            ".extern",
            ".visible .global",
            ".visible .const",
        ]
        .iter()
        .any(|start| text.starts_with(start));
        let kind = if [".version", ".target", ".address_size"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            Some(Kind::Header)
        } else if variable && depth == 0 && line.ends_with(';') {
            Some(Kind::Variable)
        } else if !variable && depth == 0 && (line == "}" || line.ends_with(';')) {
            Some(Kind::Function)
        } else {
            None
        };
        if let Some(kind) = kind {
            parts.push(Part {
                kind,
                text: std::mem::take(&mut text),
            });
        }
    }
    if text.is_empty() {
        Ok(parts)
    } else {
        Err(format!(
            "the PTX ends within a statement: {}",
            text.lines().next().unwrap_or_default()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{bundle, compressed, instructions, is_of, kernels, modules, text, texts};

    const PTX: &str = "
.version 8.0
.target sm_70
.address_size 64
.global .align 4 .u32 UNUSED = 32;
.global .align 8 .b8 TABLE[8] = {1, 0, 0, 0, 0, 0, 0, 0};
.shared .align 4 .b8 tile[64];
.func  (.param .b32 func_retval0) twice(
 .param .b32 twice_param_0
)
{
 mov.u32 %r1, TABLE;
}
.visible .entry first(
 .param .u64 first_param_0
)
.maxntid 256, 1, 1
{
 mov.u32 %r1, tile;
 {
 call.uni (retval0), twice, (param0);
 }
}
.visible .entry second()
{
 ret;
}
";

    #[test]
    fn a_kernel_comes_with_what_it_needs_and_no_more() {
        let kernels = kernels(PTX).unwrap();
        let names: Vec<&str> = kernels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        let [(_, first), (_, second)] = &kernels[..] else {
            unreachable!()
        };
        for text in [
            ".version 8.0",
            "TABLE[8]",
            "tile[64]",
            "twice_param_0",
            ".maxntid",
        ] {
            assert!(first.contains(text), "{text}");
        }
        assert!(!first.contains("UNUSED") && !first.contains("second"));
        assert_eq!(
            second,
            ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry second()\n{\n ret;\n}\n"
        );
    }

    #[test]
    fn a_bundle_gives_its_kernels_back() {
        let whole = bundle("// first", &[(70, PTX.to_owned()), (80, PTX.to_owned())]).unwrap();
        let texts = texts(&whole);
        let names: Vec<(&str, u32)> = texts.keys().copied().collect();
        assert_eq!(
            names,
            [("first", 70), ("first", 80), ("second", 70), ("second", 80)]
        );
        for (name, text) in kernels(PTX).unwrap() {
            assert_eq!(texts[&(name.as_str(), 80)], text.trim_end());
        }
        let modules = modules(&whole).unwrap();
        assert_eq!((modules[0].0, modules[1].0, modules.len()), (70, 80, 2));
        // What nothing needs is gone; the rest is there once, and is what it was.
        let module = &modules[0].1;
        assert_eq!(module.matches(".version").count(), 1);
        assert_eq!(module.matches(".entry").count(), 2);
        assert_eq!(kernels(module).unwrap(), kernels(PTX).unwrap());
    }

    #[test]
    fn instructions_are_compared_whatever_their_order_and_registers() {
        let lines = |body: &str| {
            let text = format!("// made from\n//# one 70\n{body}\n");
            let [lines] =
                <[_; 1]>::try_from(instructions(&text).into_values().collect::<Vec<_>>()).unwrap();
            lines
        };
        let one = lines("add.s32 %r1, %r2, 3;\n@%p1 bra $L__BB0_2;");
        assert_eq!(one, lines("@%p10 bra $L__BB1_7;\nadd.s32 %r12, %r4, 3;"));
        assert_ne!(one, lines("@%p1 bra $L__BB0_2;\nadd.s32 %r1, %r2, 4;"));
        assert_ne!(one, lines("@%p1 bra $L__BB0_2;\nadd.s64 %rd1, %r2, 3;"));
        assert_ne!(one, lines("add.s32 %r1, %r2, 3;"));
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let cut = &PTX[..PTX.len() - 4];
        assert!(kernels(cut).is_err());
        assert!(kernels("}").is_err());
    }

    #[test]
    fn a_change_of_a_bundle_is_seen() {
        let whole = bundle("// first", &[(70, PTX.to_owned())]).unwrap();
        assert!(is_of(&whole, "// first"));
        assert!(!is_of(&whole, "// other"));
        assert!(!is_of(&whole.replacen("ret", "rer", 1), "// first"));
        assert!(!is_of("", "// first"));
    }

    #[test]
    fn compressing_and_back() {
        let whole = bundle("// first", &[(70, PTX.to_owned()), (80, PTX.to_owned())]).unwrap();
        assert_eq!(whole.matches("\n//# first ").count(), 2);
        assert_eq!(text(&compressed(&whole).unwrap()).unwrap(), whole);
    }
}

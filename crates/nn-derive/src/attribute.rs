//! The `#[module(...)]` attributes: what may stand in them, and an error at the word that may not.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, LitStr, Path, Result};

/// What is said on the struct.
pub(crate) struct StructAttribute {
    /// Where `ModuleFields`, `Field` and `FieldVisitor` are found.
    pub(crate) krate: Path,
}

/// What is said on a field.
#[derive(Default)]
pub(crate) struct FieldAttribute {
    pub(crate) skip: bool,
    pub(crate) rename: Option<LitStr>,
}

impl StructAttribute {
    /// `home` is where the traits are if nothing is said.
    pub(crate) fn parse(attributes: &[Attribute], home: Path) -> Result<Self> {
        let mut krate = None;
        each_key(attributes, |meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown key, expected `crate = \"path\"` on a struct"));
            }
            let path: LitStr = meta.value()?.parse()?;
            match krate.replace(path.parse()?) {
                None => Ok(()),
                Some(_) => Err(meta.error("`crate` is given twice, keep one")),
            }
        })?;
        Ok(Self {
            krate: krate.unwrap_or(home),
        })
    }
}

impl FieldAttribute {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        each_key(attributes, |meta| {
            if meta.path.is_ident("skip") {
                found.skip = true;
            } else if meta.path.is_ident("rename") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() || name.value().contains('.') {
                    let text = "expected a name that is not empty and has no dot: dots join the names of nested modules";
                    return Err(syn::Error::new(name.span(), text));
                }
                if found.rename.replace(name).is_some() {
                    return Err(meta.error("`rename` is given twice, keep one"));
                }
            } else {
                return Err(
                    meta.error("unknown key, expected `skip` or `rename = \"name\"` on a field")
                );
            }
            if found.skip && found.rename.is_some() {
                return Err(meta.error("a skipped field has no name, remove `skip` or `rename`"));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Calls `read` for each key of each `#[module(...)]`.
fn each_key(
    attributes: &[Attribute],
    mut read: impl FnMut(&ParseNestedMeta) -> Result<()>,
) -> Result<()> {
    let ours = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("module"));
    ours.into_iter()
        .try_for_each(|attribute| attribute.parse_nested_meta(|meta| read(&meta)))
}

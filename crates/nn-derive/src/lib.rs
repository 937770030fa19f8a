//! `#[derive(Module)]`: has a struct show its fields one by one, so that no tensor of a module can be forgotten.
//!
//! Knows syntax only; the traits `ModuleFields`, `Field` and `FieldVisitor` are `fireclay_nn`'s.
#![forbid(unsafe_code)]

mod attribute;
mod expand;

/// Implements `ModuleFields` for a struct: each field is visited in order under its name, in a tuple struct under its
/// position (`"0"`, `"1"`).
///
/// Every field's type must be a `Field`: a tensor, a module, a list of them, or plain data that says so. A field that
/// is none of these does not compile, since a tensor that is not visited would be missing from the state dict, the
/// optimizer and every move to a device. Attributes:
/// - on a field, `#[module(skip)]` leaves it out;
/// - on a field, `#[module(rename = "weight")]` visits it under another name;
/// - on the struct, `#[module(crate = "fireclay::nn")]` says where the traits are, `::fireclay_nn` if absent.
///
/// A type parameter that a visited field's type mentions is bound by `Field`.
///
/// ```text
/// #[derive(Module)]
/// struct Net {
///     conv1: Conv2d,
///     fc: Linear,
///     #[module(skip)]
///     epochs_seen: usize,
/// }
/// ```
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input, syn::parse_quote!(::fireclay_nn))
}

/// [`Module`](macro@Module) as the facade `fireclay` exports it, under that name: the traits are at `::fireclay::nn`, so that a
/// crate which depends on the facade alone can derive.
#[proc_macro_derive(FacadeModule, attributes(module))]
pub fn derive_facade_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input, syn::parse_quote!(::fireclay::nn))
}

fn derive(input: proc_macro::TokenStream, home: syn::Path) -> proc_macro::TokenStream {
    expand::expand(input.into(), home)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

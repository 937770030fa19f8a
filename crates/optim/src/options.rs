//! A macro for options: a struct, its defaults, and its fields by PyTorch's names as a state dict keeps them.

/// A value that a state dict keeps as one or more numbers. `names` are the option's own name and those of its first, second
/// and third part.
pub(crate) trait OptionValue: Sized {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>);
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self;
}

impl OptionValue for f64 {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.push((names[0], *self));
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        value(names[0])
    }
}

impl OptionValue for u32 {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.push((names[0], f64::from(*self)));
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        value(names[0]) as u32
    }
}

impl OptionValue for bool {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.push((names[0], f64::from(u8::from(*self))));
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        value(names[0]) != 0.0
    }
}

impl OptionValue for (f64, f64) {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.extend([(names[1], self.0), (names[2], self.1)]);
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        (value(names[1]), value(names[2]))
    }
}

impl OptionValue for (f64, f64, f64) {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.extend([(names[1], self.0), (names[2], self.1), (names[3], self.2)]);
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        (value(names[1]), value(names[2]), value(names[3]))
    }
}

/// None is kept as NaN.
impl OptionValue for Option<f64> {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        to.push((names[0], self.unwrap_or(f64::NAN)));
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        Some(value(names[0])).filter(|value| !value.is_nan())
    }
}

/// Declares a struct of options with their defaults; [`named`] makes a [`Rule`](crate::Rule)'s methods of it.
macro_rules! options {
    ($(#[$doc:meta])* $Options:ident { $($(#[$about:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $Options {
            $($(#[$about])* pub $field: $type,)*
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options { $($field: $default,)* }
            }
        }

        impl $Options {
            fn all_options(&self) -> Vec<(&'static str, f64)> {
                let mut all = Vec::new();
                $($crate::options::OptionValue::write(&self.$field, $crate::options::names!($field), &mut all);)*
                all
            }

            fn read_options(value: &mut dyn FnMut(&'static str) -> f64) -> Self {
                $Options {
                    $($field: $crate::options::OptionValue::read($crate::options::names!($field), value),)*
                }
            }
        }
    };
}

macro_rules! names {
    ($field:ident) => {
        [
            stringify!($field),
            concat!(stringify!($field), ".0"),
            concat!(stringify!($field), ".1"),
            concat!(stringify!($field), ".2"),
        ]
    };
}

/// The methods of a rule that read its options.
macro_rules! named {
    () => {
        fn options(&self) -> Vec<(&'static str, f64)> {
            self.all_options()
        }

        fn with_options(&self, value: &mut dyn FnMut(&'static str) -> f64) -> Self {
            Self::read_options(value)
        }

        fn lr(&self) -> f64 {
            self.lr
        }

        fn set_lr(&mut self, lr: f64) {
            self.lr = lr;
        }
    };
}

pub(crate) use {named, names, options};

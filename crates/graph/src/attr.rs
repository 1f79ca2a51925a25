//! Attributes: the constants of an op, as text form knows them.

use plimsoll_tensor::{DType, Shape};

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number, printed so that it reads back to the same bits.
    Float(f64),
    /// A list of whole numbers: `[1,2]`.
    Ints(Vec<i64>),
    /// A word or quoted text.
    Text(String),
}

/// Names and values, in the order they print.
pub type Attrs = Vec<(&'static str, Attr)>;

/// A field type that can stand as an attribute.
pub trait AttrValue: Sized {
    /// To an attribute.
    fn to_attr(&self) -> Attr;
    /// Back, or `None` when the attribute is of another kind.
    fn from_attr(attr: &Attr) -> Option<Self>;
}

macro_rules! attr_value {
    ($($ty:ty: |$v:ident| $to:expr, |$a:ident| $from:expr;)*) => {$(
        impl AttrValue for $ty {
            fn to_attr(&self) -> Attr { let $v = self; $to }
            fn from_attr($a: &Attr) -> Option<$ty> { $from }
        }
    )*};
}

fn int(attr: &Attr) -> Option<i64> {
    if let Attr::Int(n) = attr { Some(*n) } else { None }
}

fn ints<T: TryFrom<i64>>(attr: &Attr) -> Option<Vec<T>> {
    let Attr::Ints(list) = attr else { return None };
    list.iter().map(|&n| T::try_from(n).ok()).collect()
}

attr_value! {
    bool: |v| Attr::Bool(*v), |a| if let Attr::Bool(b) = a { Some(*b) } else { None };
    i64: |v| Attr::Int(*v), |a| int(a);
    usize: |v| Attr::Int(*v as i64), |a| usize::try_from(int(a)?).ok();
    u64: |v| Attr::Int(*v as i64), |a| u64::try_from(int(a)?).ok();
    u32: |v| Attr::Int(*v as i64), |a| u32::try_from(int(a)?).ok();
    Option<i64>: |v| v.map_or(Attr::Text("none".into()), Attr::Int), |a| match a {
        Attr::Int(n) => Some(Some(*n)),
        Attr::Text(t) if t == "none" => Some(None),
        _ => None,
    };
    f64: |v| Attr::Float(*v), |a| match a { Attr::Float(x) => Some(*x), Attr::Int(n) => Some(*n as f64), _ => None };
    Vec<usize>: |v| Attr::Ints(v.iter().map(|&n| n as i64).collect()), |a| ints(a);
    Vec<i64>: |v| Attr::Ints(v.clone()), |a| ints(a);
    Shape: |v| Attr::Ints(v.dims().iter().map(|&n| n as i64).collect()), |a| Shape::try_new(&ints::<usize>(a)?);
    String: |v| Attr::Text(v.clone()), |a| if let Attr::Text(t) = a { Some(t.clone()) } else { None };
    DType: |v| Attr::Text(v.name().into()), |a| if let Attr::Text(t) = a { t.parse().ok() } else { None };
}

/// Declares an op's attributes: implements [`OpAttrs`](crate::op::OpAttrs) for a struct by listing its fields.
#[macro_export]
macro_rules! op_attrs {
    ($ty:ident = $name:literal { $($field:ident),* $(,)? }) => {
        impl $crate::op::OpAttrs for $ty {
            fn attrs(&self) -> $crate::Attrs {
                vec![$((stringify!($field), $crate::AttrValue::to_attr(&self.$field))),*]
            }
            fn parse(name: &str, _attrs: &[(String, $crate::Attr)]) -> Option<Result<Self, String>> {
                if name != $name {
                    return None;
                }
                $(let $field = match $crate::op::find_attr(_attrs, stringify!($field)) {
                    Ok(value) => value,
                    Err(message) => return Some(Err(message)),
                };)*
                Some(Ok($ty { $($field),* }))
            }
        }
    };
}

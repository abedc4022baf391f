//! Values that a function may return at once.

use syn::{GenericArgument, PathArguments, PathSegment, Type};

/// Values of a type, as text. Those that the type does not have are found by the compiler.
pub(super) fn of(wanted: &Type) -> Vec<String> {
    match wanted {
        Type::Path(path) => path.path.segments.last().map(of_path).unwrap_or_default(),
        Type::Tuple(tuple) if tuple.elems.is_empty() => texts(&["()"]),
        Type::Tuple(_) => texts(&["Default::default()"]),
        _ => Vec::new(),
    }
}

fn of_path(last: &PathSegment) -> Vec<String> {
    let inner = || first_argument(last).map(of);
    match last.ident.to_string().as_str() {
        "bool" => texts(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => texts(&["0", "1"]),
        "i8" | "i16" | "i32" | "i64" | "isize" => texts(&["0", "1", "-1"]),
        "String" => texts(&["String::new()"]),
        "Vec" => texts(&["Vec::new()"]),
        "Option" => {
            let some = inner().unwrap_or_default().into_iter().map(|value| format!("Some({value})"));
            texts(&["None"]).into_iter().chain(some).collect()
        }
        "Result" => inner()
            .unwrap_or_else(|| texts(&["()"]))
            .into_iter()
            .map(|value| format!("Ok({value})"))
            .collect(),
        "Self" => Vec::new(),
        _ => texts(&["Default::default()"]),
    }
}

fn first_argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    })
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

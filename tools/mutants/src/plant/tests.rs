use super::*;

/// The file with all its mutants, and their labels.
fn planted(text: &str) -> (String, Vec<String>) {
    let planted = plant(Path::new("a.rs"), text, &mut 1, &BTreeSet::new()).unwrap();
    let labels = planted.mutants.into_iter().map(|mutant| format!("{} {}", mutant.function, mutant.label));
    (planted.text.replace("::testudo_base::mutant::on", "on"), labels.collect())
}

#[test]
fn operators_are_changed_one_at_a_time_also_within_each_other() {
    let (text, labels) = planted("impl A { fn f(&mut self) { self.x += a == b && c; } }");
    assert_eq!(
        text,
        "impl A { fn f(&mut self) { if on(1) { return (); } \
         (if on(4) { self.x -= a == b && c } else { self.x += \
         (if on(3) { a == b || c } else { (if on(2) { a != b } else { a == b }) && c }) }); } }"
    );
    assert_eq!(labels.len(), 4);
    assert!(labels.contains(&"A::f && -> || in `a == b && c`".to_owned()), "{labels:?}");
}

#[test]
fn arms_are_left_out_where_another_takes_all_and_guards_are_true_or_false() {
    let (text, labels) = planted("fn f(a: u8) -> &'static str { match a { 1 => b, 2 if c => d, _ => e } }");
    assert_eq!(
        text,
        "fn f(a: u8) -> &'static str { match a { 1 if !on(1) => b, 2 if (on(2) || (!on(3) && (c))) => d, _ => e } }"
    );
    assert_eq!(labels[1], "f guard `c` is true");
    let (text, labels) = planted("fn f(a: bool) -> &'static str { match a { true => b, false => c } }");
    assert!(!text.contains("on(") && labels.is_empty(), "the compiler requires both arms");
}

#[test]
fn functions_return_values_of_their_type() {
    let (_, labels) = planted("fn f() -> Result<Option<bool>, E> { g() }");
    assert_eq!(labels, ["f returns Ok(None)", "f returns Ok(Some(true))", "f returns Ok(Some(false))"]);
}

#[test]
fn tests_constants_and_texts_for_operators_have_no_mutants() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> bool { a == b } }",
        "#[test] fn f() { assert!(a == b); }",
        "const A: bool = 1 == 2; const fn f() -> bool { 1 == 2 }",
        "impl fmt::Display for A { fn fmt(&self) -> Result { a == b } }",
        "fn f(a: [u8; 1 + 2]) {}",
    ] {
        assert_eq!(planted(text), (text.to_owned(), vec![]), "{text}");
    }
}

#[test]
fn a_chain_with_let_is_no_expression() {
    let (text, _) = planted("fn f() -> &str { if let Some(a) = b && !c { d } else { e } }");
    assert_eq!(
        text,
        "fn f() -> &str { if let Some(a) = b && (if on(1) { c } else { !c }) { d } else { e } }"
    );
}

#[test]
fn what_is_left_out_keeps_its_number() {
    let text = "fn f() -> bool { a < b }";
    let planted = plant(Path::new("a.rs"), text, &mut 7, &BTreeSet::from([7, 9])).unwrap();
    let numbers: Vec<u32> = planted.mutants.iter().map(|mutant| mutant.number).collect();
    assert_eq!(numbers, [8, 10]);
}

#[test]
fn a_file_that_is_not_rust_is_named_with_its_line() {
    let error = plant(Path::new("a.rs"), "fn f() {\n  )\n}", &mut 1, &BTreeSet::new()).unwrap_err();
    assert!(error.to_string().starts_with("a.rs:2: "), "{error}");
}

#[test]
fn modules_for_tests_alone_are_known() {
    let text = "#[cfg(test)]\nmod samples;\nmod b;\n#[cfg(test)]\nmod c { }\n#[cfg(unix)]\nmod d;\n";
    assert_eq!(find::test_modules(text).unwrap(), ["samples"]);
}

use proptest::prelude::*;

use super::*;

#[test]
fn the_words_of_a_text_are_those_that_say_something() {
    for (text, expected) in [
        ("Please send the e-mails!", &["send", "e", "mail"][..]),
        ("What's the WEATHER like in Paris?", &["weath", "paris"]),
        ("call getWeather", &["cal", "getweath", "weath"]),
        ("GitHub", &["github", "git", "hub"]),
        ("on 2024-05-01 at 10", &[]),
        (
            "请帮我查一下北京的天气",
            &["我查", "查一", "下北", "北京", "京的", "的天", "天气"],
        ),
        ("导出Excel表格", &["导出", "excel", "表格"]),
        ("ＥＸＣＥＬ", &["excel"]),
        ("查", &["查"]),
        ("天気はどう", &["天気", "気は", "はど", "どう"]),
        ("привет, Мир", &["привет", "мир"]),
        ("… !? ()", &[]),
        ("", &[]),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
    assert_eq!(words(&"A".repeat(65)), [""; 0]);
    assert_eq!(words(&"a".repeat(64)).len(), 1);
}

#[test]
fn a_name_has_all_of_its_words() {
    for (name, expected) in [
        ("get_weather", &["get", "weath"][..]),
        ("getHTTPResponse", &["get", "http", "respons"]),
        ("crm.list-Users2", &["crm", "list", "users2"]),
        ("s3Upload", &["s3", "upload"]),
        ("查天气", &["查天", "天气"]),
        ("__", &[]),
    ] {
        assert_eq!(name_words(name), expected, "{name}");
    }
}

#[test]
fn a_sequence_leaves_nothing_out() {
    let sequence = sequence("Draw the Q3 图表, please");
    assert_eq!(sequence, ["draw", "the", "q3", "图", "表", "pleas"]);
    assert_eq!(super::sequence("图，表 a"), ["图", "", "表", "a"]);
}

#[test]
fn what_stands_in_every_text_says_nothing() {
    for phrase in ["", "*", ".*", "the", "Is it", "我", "请问", "的", "a.b"] {
        assert_eq!(says_nothing(phrase), phrase != "a.b", "{phrase}");
    }
    for phrase in ["refund", "the refund", "退款", "图1", "ок", "R2"] {
        assert!(!says_nothing(phrase), "{phrase}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text in any::<String>(), mixed in "[a-zA-Z0-9_.\\-ａ-ｚ天気中あ \u{301}]{0,80}") {
        for text in [text, mixed] {
            let many = text.chars().count();
            prop_assert!(words(&text).len() <= 2 * many);
            prop_assert!(name_words(&text).len() <= many);
            prop_assert!(sequence(&text).len() <= 2 * many);
            prop_assert!(says_nothing(&text) || !sequence(&text).is_empty());
        }
    }

    #[test]
    fn case_makes_no_other_word(text in "[a-z ]{0,60}") {
        prop_assert_eq!(words(&text), words(&text.to_uppercase()));
    }
}

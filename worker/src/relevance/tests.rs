use proptest::prelude::*;

use super::*;

fn score(said: &str, name: &str, description: &str) -> u32 {
    ToolWords::of(name, description).score(&SaidWords::of(&[said]))
}

#[test]
fn a_score_is_of_the_name_its_parts_and_three_words_of_the_description() {
    for (said, name, description, expected) in [
        // The whole name and its two parts.
        ("call get_weather now", "fetch_weather", "", 3),
        ("fetch_weather of Oslo", "fetch_weather", "", 10 + 6),
        ("fetch weather of Oslo", "fetch_weather", "", 10 + 6),
        ("FetchWeather", "fetch_weather", "", 10 + 6),
        ("weather, then fetch", "fetch_weather", "", 6),
        ("use the GitHub tool", "gitHub", "", 10 + 6),
        ("github", "gitHub", "", 10),
        ("translate this", "translate", "", 10 + 3),
        ("translating this", "translate", "", 10 + 3),
        // Whole words alone.
        ("the weatherman", "fetch_weather", "", 0),
        ("category", "cat", "", 0),
        // Descriptions, three words at most.
        ("the rain in Oslo", "forecast", "Tells rain.", 2),
        (
            "rain, snow, sun and fog",
            "forecast",
            "Rain, snow, sun or fog?",
            6,
        ),
        ("rain rain rain", "forecast", "Rain, rain.", 2),
        (
            "what is it for the",
            "forecast",
            "What it is for the best.",
            0,
        ),
        // Pairs of Chinese characters.
        ("明天会下雨吗", "forecast", "查询是否下雨", 2),
        ("北京明天天气怎么样", "forecast", "查询城市的天气预报", 2),
        ("查天气", "查天气", "", 10 + 6),
        ("天", "forecast", "天气", 0),
        ("", "forecast", "rain", 0),
        ("rain", "", "rain", 2),
        ("rain", "", "", 0),
    ] {
        assert_eq!(
            score(said, name, description),
            expected,
            "{said} / {name} / {description}"
        );
    }
}

#[test]
fn all_that_was_said_counts_and_of_very_much_the_end() {
    let tool = ToolWords::of("fetch_weather", "");
    let score = |texts: &[&str]| tool.score(&SaidWords::of(texts));
    assert_eq!(score(&["the weather?", "and in Rome?"]), 3);
    let long = "天".repeat(SAID_MAX);
    assert_eq!(score(&[&long, "the weather?"]), 3);
    assert_eq!(score(&["the weather?", &long]), 0);
    let behind = format!("{long} weather");
    assert_eq!(score(&[&behind]), 3);
}

/// The names of the tools that fit, and whether there is enough to go by.
fn ranked<'t>(said: &str, tools: &[(&'t str, &str)]) -> (Vec<&'t str>, bool) {
    let words: Vec<_> = tools
        .iter()
        .map(|(name, text)| ToolWords::of(name, text))
        .collect();
    let ranked = RankedTools::of(&SaidWords::of(&[said]), &words);
    (
        ranked.places.iter().map(|n| tools[*n].0).collect(),
        ranked.is_sure,
    )
}

#[test]
fn of_one_score_the_rarer_words_come_first_and_then_the_first_tool() {
    let tools = [
        ("list_bills", ""),
        ("list_cats", ""),
        ("buy_dogs", ""),
        ("feed_cows", ""),
    ];
    let (names, _) = ranked("list and feed", &tools);
    assert_eq!(names, ["feed_cows", "list_bills", "list_cats"]);
}

#[test]
fn one_word_of_many_may_stand_there_by_chance() {
    let tools = [
        ("fetch_weather", "Tells the weather and the rain."),
        ("page_on_call", "Calls who is on call."),
        ("translate", "Says it in another language."),
        ("查询天气", "天气预报"),
    ];
    for (said, sure) in [
        ("weather in Paris?", true),
        ("weather", true),
        ("is the weather in Paris fit for walks", false),
        (
            "is the weather in Paris fit for walks, or will there be rain",
            true,
        ),
        ("remind me to call the dentist and the baker", false),
        (
            "could you translate these words of my dear old grandmother",
            true,
        ),
        ("北京天气如何", true),
        ("我们去北京的话天气好不好", false),
        ("我们去北京之前想看天气预报", true),
        ("nothing of this sort", true),
    ] {
        assert_eq!(ranked(said, &tools).1, sure, "{said}");
    }
}

/// Names and descriptions as they come, and what is said in words of the same few.
fn texts() -> impl Strategy<Value = (Vec<(String, String)>, String)> {
    let text = "([a-d]{1,3}|[天气预报]{1,3}|[ _.A-D]){0,12}";
    (proptest::collection::vec((text, text), 0..8), text)
}

proptest! {
    #[test]
    fn the_order_of_tools_changes_no_score((tools, said) in texts(), by in 0_usize..8) {
        let said = SaidWords::of(&[&said]);
        let by = by % tools.len().max(1);
        let words = |tools: &[(String, String)]| -> Vec<_> {
            tools.iter().map(|(name, text)| ToolWords::of(name, text)).collect()
        };
        let scores = |words: &[ToolWords]| -> Vec<u32> {
            words.iter().map(|tool| tool.score(&said)).collect()
        };
        let mut turned = tools.clone();
        turned.rotate_left(by);
        let (before, after) = (words(&tools), words(&turned));
        let mut expected = scores(&before);
        expected.rotate_left(by);
        prop_assert_eq!(scores(&after), expected);
        let (before, after) = (RankedTools::of(&said, &before), RankedTools::of(&said, &after));
        prop_assert_eq!(before.is_sure, after.is_sure);
        prop_assert_eq!(before.places.len(), after.places.len());
    }

    #[test]
    fn no_text_is_too_odd(said in any::<String>(), name in any::<String>(), description in any::<String>()) {
        let tool = ToolWords::of(&name, &description);
        let parts = u32::try_from(name.len()).unwrap();
        prop_assert!(tool.score(&SaidWords::of(&[&said, &name])) <= 10 + 6 + 3 * parts);
    }
}

//! How often a tool that is needed stays, and how much is saved: a catalogue of 100 tools, and 120 questions, half in English and half
//! in Chinese, for which it is known which tool they need.
//!
//! Some questions share no word with the tool that they need, and some share words with others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::executors::chat::estimate;

#[derive(Deserialize)]
struct Catalogue {
    tools: Vec<CatalogueTool>,
    questions: Vec<CatalogueQuestion>,
}

#[derive(Deserialize)]
struct CatalogueTool {
    name: String,
    en: String,
    zh: String,
    parameters: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct CatalogueQuestion {
    /// The language of the question, and of the descriptions.
    language: String,
    said: Vec<String>,
    needs: String,
}

impl CatalogueTool {
    fn description(&self, language: &str) -> &str {
        if language == "zh" { &self.zh } else { &self.en }
    }

    fn tokens(&self, language: &str) -> u64 {
        let parameters = self.parameters.iter();
        let parameters: Vec<Value> = parameters
            .map(|(name, text)| json!([name, "string", text]))
            .collect();
        estimate::tokens(&json!([
            self.name,
            self.description(language),
            "object",
            parameters
        ]))
    }
}

#[test]
fn the_tool_that_is_needed_stays_for_ninety_nine_of_a_hundred_questions() {
    let catalogue: Catalogue = serde_json::from_str(include_str!("catalogue.json")).unwrap();
    let Catalogue { tools, questions } = catalogue;
    assert_eq!((tools.len(), questions.len()), (100, 120));
    let selection = spec(&json!({}));
    let (mut lost, mut unchanged) = (Vec::new(), 0);
    let (mut tokens_of_all, mut tokens_kept) = (0, 0);
    for question in &questions {
        let offered: Vec<OfferedTool<'_>> = tools
            .iter()
            .map(|tool| OfferedTool {
                name: Some(&tool.name),
                description: tool.description(&question.language),
            })
            .collect();
        let said: Vec<&str> = question.said.iter().map(String::as_str).collect();
        let kept = select(&selection, &said, &offered, &HashSet::new());
        let kept = match kept {
            Selected::Kept(kept) => kept,
            Selected::All | Selected::Unknown => {
                unchanged += 1;
                (0..tools.len()).collect()
            }
        };
        if !kept.iter().any(|n| tools[*n].name == question.needs) {
            lost.push(format!("{}: {}", question.needs, question.said.join(" / ")));
        }
        let tokens = |tool: &CatalogueTool| tool.tokens(&question.language);
        tokens_of_all += tools.iter().map(tokens).sum::<u64>();
        tokens_kept += kept.iter().map(|n| tokens(&tools[*n])).sum::<u64>();
    }
    let all = questions.len();
    let stayed = all - lost.len();
    let saved = 100 * (tokens_of_all - tokens_kept) / tokens_of_all;
    println!(
        "{stayed} of {all} needed tools stayed; {unchanged} requests were left as they were; {} of {} tokens of definitions a request, {saved} % saved",
        tokens_kept / all as u64,
        tokens_of_all / all as u64,
    );
    assert!(stayed * 100 >= all * 99, "{lost:#?}");
    assert!(saved >= 50, "only {saved} % saved");
}

//! The kinds of damage, and what is expected of each.

use super::{Damage, Source, envelopes, keys, lists, numbers, scalars, texts};
use crate::random::Chance;

/// At which levels a kind is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mends {
    /// In every class.
    Always,
    /// For tools that only read.
    Read,
    /// Mending it would be a guess.
    Never,
    /// Mended or refused, both are right: what was sent elsewhere may be left out where it was the default.
    Either,
}

type Draw = fn(&Source<'_>, &mut Chance) -> Option<Damage>;

/// One way of getting it wrong.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) mends: Mends,
    /// Of the cases that do not fit as they are, how many in a hundred are mended at least where the kind is mended.
    pub(crate) floor: usize,
    pub(crate) draw: Draw,
}

const fn mended(name: &'static str, mends: Mends, floor: usize, draw: Draw) -> Kind {
    Kind {
        name,
        mends,
        floor,
        draw,
    }
}

const fn never(name: &'static str, draw: Draw) -> Kind {
    mended(name, Mends::Never, 0, draw)
}

const fn either(name: &'static str, draw: Draw) -> Kind {
    mended(name, Mends::Either, 0, draw)
}

/// All of them; the first are those that the rules are for.
pub(crate) const KINDS: [Kind; 101] = {
    use Mends::{Always, Read};
    [
        mended("number as text", Always, 85, numbers::number_as_text),
        mended(
            "integer as text 5.0",
            Always,
            85,
            numbers::integer_as_decimal_text,
        ),
        mended("boolean as text", Always, 85, scalars::boolean_as_text),
        mended("array as JSON text", Always, 90, texts::array_as_json),
        mended("object as JSON text", Always, 90, texts::object_as_json),
        mended("all in a wrapper", Always, 98, keys::wrapped),
        mended(
            "all as text in a wrapper",
            Always,
            98,
            keys::wrapped_as_text,
        ),
        mended("integer for text", Always, 60, scalars::integer_for_text),
        mended("boolean for a word", Always, 50, scalars::boolean_for_word),
        mended("integral float", Always, 0, numbers::integral_float),
        mended("null for absent", Always, 90, scalars::null_for_absent),
        mended(
            "empty text for absent",
            Always,
            70,
            scalars::empty_for_absent,
        ),
        mended(
            "word in other case or space",
            Always,
            88,
            scalars::word_in_other_case,
        ),
        mended("JSON text in a fence", Read, 88, texts::fenced),
        mended("JSON5 text", Read, 88, texts::json5),
        mended("Python text", Read, 88, texts::python),
        mended("value for array of one", Read, 60, lists::one_for_array),
        mended("array of one for value", Read, 50, lists::array_for_one),
        mended(
            "tool's name and arguments",
            Always,
            98,
            keys::wrapped_with_name,
        ),
        mended(
            "envelopes of model APIs",
            Always,
            95,
            envelopes::of_this_tool,
        ),
        mended("envelopes of other APIs", Always, 95, envelopes::of_others),
        mended(
            "envelope, a key is the tool's",
            Always,
            90,
            envelopes::with_own_key,
        ),
        never(
            "other tool, a key is this one's",
            envelopes::of_other_tool_with_own_key,
        ),
        never("envelope with more beside it", envelopes::with_more),
        never("wrapper around an unknown one", envelopes::around_unknown),
        either("nothing for a word or false", scalars::nothing_for_its_word),
        never(
            "integer for a text as shown",
            scalars::integer_for_shown_text,
        ),
        never("moved, beside null or \"\"", scalars::moved_beside_nothing),
        either("every scalar as JSON text", texts::each_encoded),
        never("JSON text with its own name", texts::own_name_inside),
        never("JSON text, backslashes lost", texts::under_escaped),
        never("JSON for the text of it", texts::json_for_its_text),
        never("list joined: in one word", lists::joined_to_one_word),
        never("0, -1 for a list", lists::number_for_list),
        either("list swapped with a text", lists::swapped_with_text),
        never("other tool and arguments", keys::wrapped_with_other_name),
        never("envelopes in doubt", envelopes::in_doubt),
        never("boolean for text", scalars::boolean_for_text),
        never("unknown property added", keys::unknown_added),
        never(
            "misnamed beside null or \"\"",
            keys::misnamed_beside_nothing,
        ),
        never("scalar under a text's name", keys::under_name_of_text),
        never("key: another word", keys::synonym),
        never("key: another case", keys::other_case),
        never("key: misspelt", keys::misspelt),
        either("key: other word, wrong value", keys::synonym_and_wrong),
        either("key: other case, wrong value", keys::other_case_and_wrong),
        never("key: a word for talk", keys::named_as_talk),
        never("key dropped", keys::dropped),
        either("property one level up", keys::moved_up),
        either("property up and renamed", keys::moved_up_renamed),
        either("property one level down", keys::moved_down),
        either("property in a wrapper", keys::moved_into_wrapper),
        either("object flattened", keys::flattened),
        either("values swapped", keys::swapped),
        either("values swapped across levels", keys::swapped_across),
        either("items swapped", keys::items_swapped),
        either("all in another wrapper", keys::wrapped_in_other_name),
        never("all but one in a wrapper", keys::wrapped_but_one),
        either("all in a wrapper with company", keys::wrapped_with_company),
        either("all in two wrappers", keys::wrapped_twice),
        never("list joined: comma", lists::joined_by_comma),
        never("list joined: space", lists::joined_by_space),
        never("list joined: semicolon", lists::joined_by_semicolon),
        never("list joined: otherwise", lists::joined_otherwise),
        never("word for nothing or all", lists::word_for_list),
        never("list as a map of indices", lists::as_index_map),
        never("object as a list of pairs", lists::as_pairs),
        never("list in a wrapper", lists::in_wrapper),
        never("array of two for value", lists::two_for_one),
        never("null in a list", lists::null_inside),
        never("empty array or object", lists::empty_container),
        never("number: 1,000", numbers::thousands),
        never("number: 1.000", numbers::thousands_by_point),
        never("number: 10.000", numbers::round_thousands_by_point),
        never("number: 50%", numbers::percent),
        never("number: 5 kg", numbers::unit),
        never("number: 0x10", numbers::hexadecimal),
        never("number: five", numbers::in_words),
        never("number: +5, 05, 5., ５", numbers::other_grammar),
        never("number: NaN, n/a", numbers::not_a_number),
        never("number: 5.5 for an integer", numbers::fraction),
        never("number: far too large", numbers::too_large),
        never("boolean: yes, on", scalars::yes_no),
        never("boolean: 1, 0", scalars::one_zero),
        never("word: nearly", scalars::word_nearly),
        never("word: its number", scalars::word_by_index),
        never("date in another format", scalars::other_date),
        never("object for a scalar", scalars::object_for_scalar),
        never("scalar for an object", scalars::scalar_for_object),
        never("text null for absent", scalars::null_text_for_absent),
        never("JSON text cut off", texts::truncated),
        never("JSON text, a key twice", texts::key_twice),
        never("Python or JSON5 text cut off", texts::relaxed_truncated),
        either("JSON text and prose", texts::with_prose),
        either("JSON text in JSON text", texts::text_in_text),
        either("JSON text of JSON text", texts::twice_encoded),
        either("Python tuple or set", texts::python_tuple),
        either("two that can be mended", pair_mended),
        either("two, of which one never", pair_never_and_mended),
        either("two of any", pair_of_any),
        either("three of any", three_of_any),
    ]
};

fn draw_of(
    source: &Source<'_>,
    chance: &mut Chance,
    wanted: impl Fn(Mends) -> bool,
) -> Option<Damage> {
    let kinds: Vec<&Kind> = KINDS[..KINDS.len() - 4]
        .iter()
        .filter(|kind| wanted(kind.mends))
        .collect();
    (0..8).find_map(|_| (chance.of(&kinds).draw)(source, chance))
}

fn pair_mended(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let wanted = |mends| matches!(mends, Mends::Always | Mends::Read);
    draw_of(source, chance, wanted)?.and(&draw_of(source, chance, wanted)?)
}

fn pair_never_and_mended(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let never = draw_of(source, chance, |mends| mends == Mends::Never)?;
    never.and(&draw_of(source, chance, |mends| mends != Mends::Never)?)
}

fn pair_of_any(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    draw_of(source, chance, |_| true)?.and(&draw_of(source, chance, |_| true)?)
}

fn three_of_any(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    pair_of_any(source, chance)?.and(&draw_of(source, chance, |_| true)?)
}

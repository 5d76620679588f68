-- Why: `lower` folds letters beyond ASCII by the locale of the database, in `C` none of them, and never two letters to one: `straße` and
-- `STRASSE` counted as two people. The letters of Latin, Greek, Cyrillic and Armenian are folded by a table now, wherever Postgres runs;
-- marks above and below them are apart from their letters before that. Names that were two people's by then stay so: a decision
-- does not change, so those that are there have no `person`.
-- Locks: ACCESS EXCLUSIVE on call_decisions, for as long as its rows are read once for the index: one for each decision of a person.
-- The release before survives it: it decides by `decide` alone.

DROP INDEX toolfleet.call_decisions_once;

-- Whose decision it is, however the name is written: without what the door adds about the sender, without what is not seen, and in one
-- case.
CREATE OR REPLACE FUNCTION toolfleet.person_of(actor text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT translate(replace(replace(regexp_replace(
        normalize(regexp_replace(actor, '(\s*\([^()]*\)\s*)+$', ''), NFKD),
        '[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]+', '', 'g'),
        'ß', 'ss'), 'ẞ', 'ss'),
        'ABCDEFGHIJKLMNOPQRSTUVWXYZÆÐØÞĐĦŁŊŒŦƁƂƄƆƇƉƊƋƎƏƐƑƓƔƖƗƘƜƝƟƢƤƦƧƩƬƮƱƲƳƵƷƸƼǤǶǷȜȠȢȤȺȻȽȾɁɃɄɅɆɈɊɌɎͰͲͶͿΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠ'
            || 'ΡΣΤΥΦΧΨΩςϏϘϚϜϞϠϷϺϽϾϿЂЄЅІЈЉЊЋЏАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯѠѢѤѦѨѪѬѮѰѲѴѸѺѼѾҀҊҌҎҐҒҔҖҘҚҜҞҠҢҤҦҨҪҬҮҰҲҴҶҸҺҼҾӀӃӅӇӉӋӍ'
            || 'ӔӘӠӨӶӺӼӾԀԂԄԆԈԊԌԎԐԒԔԖԘԚԜԞԠԢԤԦԨԪԬԮԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖᲀᲁᲂᲃᲄᲅᲆᲇᲈỺỼỾⱠⱢⱣⱤⱧⱩⱫⱭⱮⱯⱰⱲⱵⱾⱿꙀꙂꙄꙆꙈꙊꙌꙎꙐꙒꙔꙖꙘ'
            || 'ꙚꙜꙞꙠꙢꙤꙦꙨꙪꙬꚀꚂꚄꚆꚈꚊꚌꚎꚐꚒꚔꚖꚘꚚꜢꜤꜦꜨꜪꜬꜮꜲꜴꜶꜸꜺꜼꜾꝀꝂꝄꝆꝈꝊꝌꝎꝐꝒꝔꝖꝘꝚꝜꝞꝠꝢꝤꝦꝨꝪꝬꝮꝹꝻꝽꝾꞀꞂꞄꞆꞋꞍꞐꞒꞖꞘꞚꞜꞞꞠꞢꞤꞦꞨꞪꞫꞬꞭꞮꞰꞱꞲꞳꞴꞶꞸꞺꞼꞾꟀꟂꟄꟅꟆꟇꟉꟐꟖꟘꟵ',
        'abcdefghijklmnopqrstuvwxyzæðøþđħłŋœŧɓƃƅɔƈɖɗƌǝəɛƒɠɣɩɨƙɯɲɵƣƥʀƨʃƭʈʊʋƴƶʒƹƽǥƕƿȝƞȣȥⱥȼƚⱦɂƀʉʌɇɉɋɍɏͱͳͷϳαβγδεζηθικλμνξοπ'
            || 'ρστυφχψωσϗϙϛϝϟϡϸϻͻͼͽђєѕіјљњћџабвгдежзиклмнопрстуфхцчшщъыьэюяѡѣѥѧѩѫѭѯѱѳѵѹѻѽѿҁҋҍҏґғҕҗҙқҝҟҡңҥҧҩҫҭүұҳҵҷҹһҽҿӏӄӆӈӊӌӎ'
            || 'ӕәӡөӷӻӽӿԁԃԅԇԉԋԍԏԑԓԕԗԙԛԝԟԡԣԥԧԩԫԭԯաբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆвдосттъѣꙋỻỽỿⱡɫᵽɽⱨⱪⱬɑɱɐɒⱳⱶȿɀꙁꙃꙅꙇꙉꙋꙍꙏꙑꙓꙕꙗꙙ'
            || 'ꙛꙝꙟꙡꙣꙥꙧꙩꙫꙭꚁꚃꚅꚇꚉꚋꚍꚏꚑꚓꚕꚗꚙꚛꜣꜥꜧꜩꜫꜭꜯꜳꜵꜷꜹꜻꜽꜿꝁꝃꝅꝇꝉꝋꝍꝏꝑꝓꝕꝗꝙꝛꝝꝟꝡꝣꝥꝧꝩꝫꝭꝯꝺꝼᵹꝿꞁꞃꞅꞇꞌɥꞑꞓꞗꞙꞛꞝꞟꞡꞣꞥꞧꞩɦɜɡɬɪʞʇʝꭓꞵꞷꞹꞻꞽꞿꟁꟃꞔʂᶎꟈꟊꟑꟗꟙꟶ')
$$;

ALTER TABLE toolfleet.call_decisions ADD COLUMN person text;

CREATE FUNCTION toolfleet.name_person() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    NEW.person := toolfleet.person_of(NEW.actor);
    RETURN NEW;
END $$;
CREATE TRIGGER person_is_named BEFORE INSERT ON toolfleet.call_decisions FOR EACH ROW EXECUTE FUNCTION toolfleet.name_person();

-- One person says yes once, and may say no after that.
CREATE UNIQUE INDEX call_decisions_once ON toolfleet.call_decisions (call_id, person, decision);

REVOKE EXECUTE ON FUNCTION toolfleet.name_person FROM PUBLIC;

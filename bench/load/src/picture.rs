//! A picture: a curve of latencies for each workload, and a bar for its throughput beside that of the floor. Plain SVG.

use std::fmt::Write as _;

use crate::report::{CURVE, Measured};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 50.0;
const CURVES: f64 = 300.0;
const BAR: f64 = 18.0;
/// Distinguishable with any kind of colour vision.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];
const FLOOR: &str = "#bbbbbb";

/// The whole picture.
pub fn svg(workloads: &[Measured]) -> String {
    let bars_top = TOP + CURVES + 90.0;
    let height = bars_top + 2.5 * BAR * as_f64(workloads.len()) + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    curves(&mut svg, workloads);
    bars(&mut svg, workloads, bars_top);
    svg.push_str("</svg>\n");
    svg
}

/// Milliseconds over percentiles. Both scales are logarithmic, for the last percent matters, and it is far up.
fn curves(svg: &mut String, workloads: &[Measured]) {
    let all = workloads.iter().flat_map(|one| &one.curve);
    let highest = all.clone().fold(1.0_f64, |most, ms| most.max(*ms));
    let lowest = all.fold(highest, |least, ms| least.min(*ms)).max(0.01);
    let (low, high) = (
        lowest.log10().floor(),
        highest.log10().ceil().max(lowest.log10().floor() + 1.0),
    );
    let y = |ms: f64| TOP + CURVES * (1.0 - (ms.max(lowest).log10() - low) / (high - low));
    text(
        svg,
        LEFT,
        TOP - 20.0,
        "start",
        "latency in ms by percentile",
    );
    let mut decade = low;
    while decade <= high {
        let ms = 10.0_f64.powf(decade);
        line(svg, (LEFT, y(ms)), (WIDTH - RIGHT, y(ms)));
        text(svg, LEFT - 8.0, y(ms) + 4.0, "end", &format!("{ms}"));
        decade += 1.0;
    }
    for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99] {
        line(svg, (x(percent), TOP), (x(percent), TOP + CURVES));
        text(
            svg,
            x(percent),
            TOP + CURVES + 18.0,
            "middle",
            &format!("{percent}"),
        );
    }
    for ((place, one), colour) in workloads.iter().enumerate().zip(COLOURS.iter().cycle()) {
        let points = CURVE.iter().zip(&one.curve);
        let points: Vec<String> = points
            .map(|(percent, ms)| format!("{:.1},{:.1}", x(*percent), y(*ms)))
            .collect();
        push(
            svg,
            &format!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                points.join(" ")
            ),
        );
        let at = TOP + 18.0 * as_f64(place) + 10.0;
        rectangle(svg, (WIDTH - RIGHT + 20.0, at - 9.0), (12.0, 10.0), colour);
        text(svg, WIDTH - RIGHT + 38.0, at, "start", &one.name);
    }
}

fn bars(svg: &mut String, workloads: &[Measured], top: f64) {
    let both = workloads
        .iter()
        .flat_map(|one| [Some(one.calls_per_s), one.floor_calls_per_s]);
    let most = both.flatten().fold(1.0_f64, f64::max);
    let length = |per_second: f64| (WIDTH - LEFT - RIGHT) * per_second / most;
    text(
        svg,
        LEFT,
        top - 20.0,
        "start",
        "calls a second; the floor in grey",
    );
    for ((place, one), colour) in workloads.iter().enumerate().zip(COLOURS.iter().cycle()) {
        let at = top + 2.5 * BAR * as_f64(place);
        rectangle(svg, (LEFT, at), (length(one.calls_per_s), BAR), colour);
        let ratio = one
            .ratio
            .map_or_else(String::new, |ratio| format!(" ({ratio:.2})"));
        let label = format!("{} {:.0}{ratio}", one.name, one.calls_per_s);
        text(
            svg,
            LEFT + length(one.calls_per_s) + 6.0,
            at + 13.0,
            "start",
            &label,
        );
        if let Some(floor) = one.floor_calls_per_s {
            rectangle(svg, (LEFT, at + BAR), (length(floor), BAR / 2.0), FLOOR);
            let label = format!("{floor:.0}");
            text(
                svg,
                LEFT + length(floor) + 6.0,
                at + BAR * 1.5,
                "start",
                &label,
            );
        }
    }
}

/// Each further nine is as far from the last as that one from the one before.
fn x(percent: f64) -> f64 {
    let nines = -(1.0 - percent.min(99.995) / 100.0).log10();
    LEFT + (WIDTH - LEFT - RIGHT) * nines / 4.31
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    push(
        svg,
        &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"),
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    push(
        svg,
        &format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#dddddd\"/>"
        ),
    );
}

fn rectangle(svg: &mut String, at: (f64, f64), size: (f64, f64), colour: &str) {
    let ((x, y), (width, height)) = (at, size);
    push(
        svg,
        &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ),
    );
}

fn push(svg: &mut String, element: &str) {
    writeln!(svg, "{element}").expect("a String takes everything");
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use fleet::call::Effect;

    use super::*;
    use crate::report::sample;

    #[test]
    fn every_workload_has_its_curve_and_its_bar_within_the_frame() {
        let mut slow = sample(Effect::Transaction);
        slow.curve = CURVE.iter().map(|percent| percent * 50.0).collect();
        slow.floor_calls_per_s = Some(20_000.0);
        let svg = svg(&[sample(Effect::Once), slow]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(
            svg.contains("once_sync 1000") && svg.contains(">20000<"),
            "{svg}"
        );
        let numbers = svg.split('"').filter_map(|word| word.parse::<f64>().ok());
        assert!(
            numbers
                .clone()
                .all(|number| (0.0..=WIDTH).contains(&number)),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_picture_of_nothing_is_a_picture() {
        let mut nothing = sample(Effect::Read);
        (nothing.curve, nothing.calls_per_s) = (Vec::new(), 0.0);
        assert!(!svg(&[nothing]).contains("NaN"));
    }
}

//! What can be drawn, and the colour of each pixel. Change this file to draw something else.

use schemars::JsonSchema;
use serde::Deserialize;

const PAPER: [u8; 3] = [255, 255, 255];
const INSIDE: [u8; 3] = [12, 12, 32];
/// Colours of bars, which repeat.
const BARS: [[u8; 3]; 4] = [[38, 92, 166], [226, 120, 40], [70, 150, 90], [150, 80, 160]];

// A model reads the comments of the type and its fields.
/// What the picture shows: a kind, and what that kind needs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drawing {
    /// A bar for each value, from left to right. The highest value has the height of the picture.
    Bars {
        /// The values, such as [3, 5, 2]. None may be negative.
        #[schemars(length(min = 1, max = 200), inner(range(min = 0.0, max = 1e12)))]
        values: Vec<f64>,
    },
    /// A part of the Mandelbrot set. A large one takes seconds and tells how far it is.
    Fractal {
        /// Where the middle of the picture is on the real axis, such as -0.745.
        #[schemars(range(min = -2.0, max = 2.0))]
        x: f64,
        /// Where the middle of the picture is on the imaginary axis, such as 0.113.
        #[schemars(range(min = -2.0, max = 2.0))]
        y: f64,
        /// How near it is: 1 shows the whole set, 100 a hundredth of its width.
        #[schemars(range(min = 1.0, max = 1e9))]
        zoom: f64,
        /// How finely the edge is drawn, from 50 to 2000; 300 if absent.
        #[schemars(range(min = 50, max = 2_000))]
        detail: Option<u32>,
    },
}

impl Drawing {
    /// The colour of a pixel of a picture of this size. Row 0 is the topmost one.
    pub fn colour(&self, width: u32, height: u32, column: u32, row: u32) -> [u8; 3] {
        match self {
            Self::Bars { values } => bar(values, width, height, column, row),
            Self::Fractal { x, y, zoom, detail } => {
                // The set is three wide; pixels are square.
                let side = 3.0 / zoom / f64::from(width);
                let right = (f64::from(column) - f64::from(width) / 2.0) * side;
                let up = (f64::from(height) / 2.0 - f64::from(row)) * side;
                fractal(x + right, y + up, detail.unwrap_or(300))
            }
        }
    }
}

fn bar(values: &[f64], width: u32, height: u32, column: u32, row: u32) -> [u8; 3] {
    let place = f64::from(column) / f64::from(width) * values.len() as f64;
    let (index, within) = (place as usize, place.fract());
    let highest = values.iter().copied().fold(0.0, f64::max);
    let from_below = f64::from(height - row) / f64::from(height);
    let is_gap = within >= 0.8;
    match values.get(index) {
        Some(value) if !is_gap && from_below * highest <= *value && *value > 0.0 => {
            BARS[index % BARS.len()]
        }
        Some(_) | None => PAPER,
    }
}

/// How soon a point leaves, as a colour without steps.
fn fractal(x: f64, y: f64, detail: u32) -> [u8; 3] {
    let (mut re, mut im) = (0.0_f64, 0.0_f64);
    for step in 0..detail {
        let (re2, im2) = (re * re, im * im);
        if re2 + im2 > 256.0 {
            let speed = f64::from(step) + 1.0 - (re2 + im2).ln().log2();
            return [0.0, 0.6, 1.2]
                .map(|phase| (127.5 * (1.0 - (speed * 0.12 + phase).cos())) as u8);
        }
        (re, im) = (re2 - im2 + x, 2.0 * re * im + y);
    }
    INSIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[f64], column: u32, row: u32) -> [u8; 3] {
        let values = values.to_vec();
        Drawing::Bars { values }.colour(100, 100, column, row)
    }

    #[test]
    fn a_bar_is_as_high_as_its_value() {
        // The first of two bars ends at half of the height.
        for (column, row, colour) in [
            (10, 49, PAPER),
            (10, 50, BARS[0]),
            (10, 99, BARS[0]),
            (60, 0, BARS[1]),
            (45, 99, PAPER),
        ] {
            assert_eq!(bars(&[1.0, 2.0], column, row), colour, "{column} {row}");
        }
        assert_eq!(bars(&[0.0, 0.0], 10, 99), PAPER);
    }

    #[test]
    fn the_set_is_dark_and_what_is_around_it_is_not() {
        let drawing = Drawing::Fractal {
            x: 0.0,
            y: 0.0,
            zoom: 1.0,
            detail: None,
        };
        assert_eq!(drawing.colour(100, 100, 50, 50), INSIDE);
        assert_ne!(drawing.colour(100, 100, 0, 0), INSIDE);
    }
}

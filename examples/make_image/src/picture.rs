//! The arguments, and the file that becomes of them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::Drawing;

/// The largest picture has 5.8 MB of pixels, 7.7 MB in base64 where nothing can be compressed: less than the 8 MiB that an answer may have.
const WIDTH_MAX: u32 = 1_600;
const HEIGHT_MAX: u32 = 1_200;

/// A picture: its size, and what it shows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Picture {
    /// How wide it is in pixels, such as 640.
    #[schemars(range(min = 16, max = WIDTH_MAX))]
    pub width: u32,
    /// How high it is in pixels, such as 400.
    #[schemars(range(min = 16, max = HEIGHT_MAX))]
    pub height: u32,
    /// What it shows.
    pub drawing: Drawing,
}

impl Picture {
    /// Why it cannot be drawn, for the model: what the schema cannot say.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.drawing {
            Drawing::Bars { values } if values.len() * 2 > self.width as usize => Some(format!(
                "{} bars do not fit into {} pixels: ask for a width of {} or more, or for fewer bars",
                values.len(),
                self.width,
                values.len() * 2
            )),
            Drawing::Bars { .. } | Drawing::Fractal { .. } => None,
        }
    }

    /// Adds the pixels of a row, three bytes each.
    pub(crate) fn row(&self, row: u32, pixels: &mut Vec<u8>) {
        for column in 0..self.width {
            pixels.extend(self.drawing.colour(self.width, self.height, column, row));
        }
    }

    /// The PNG of all rows. Takes up to a second: not for a thread on which other calls wait.
    pub(crate) fn png(&self, pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(pixels)?;
        writer.finish()?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(width: u32, height: u32, values: &[f64]) -> Picture {
        let values = values.to_vec();
        Picture {
            width,
            height,
            drawing: Drawing::Bars { values },
        }
    }

    #[test]
    fn the_largest_picture_fits_into_an_answer_if_nothing_can_be_compressed() {
        let mut noise = 1_u64;
        let pixels: Vec<u8> = (0..WIDTH_MAX * HEIGHT_MAX * 3)
            .map(|_| {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                noise.to_be_bytes()[0]
            })
            .collect();
        let file = bars(WIDTH_MAX, HEIGHT_MAX, &[1.0]).png(&pixels).unwrap();
        assert!(file.len() > pixels.len(), "{} bytes", file.len());
        let in_answer = file.len().div_ceil(3) * 4 + 1_024;
        assert!(in_answer <= 8 * 1024 * 1024, "{in_answer} bytes");
    }

    #[test]
    fn a_picture_is_read_back_as_it_was_drawn() {
        let (asked, mut drawn) = (bars(40, 20, &[1.0, 2.0]), Vec::new());
        for row in 0..asked.height {
            asked.row(row, &mut drawn);
        }
        let file = asked.png(&drawn).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(&file));
        let mut reader = reader.read_info().unwrap();
        let mut seen = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut seen).unwrap();
        assert_eq!((frame.width, frame.height), (40, 20));
        assert_eq!(seen, drawn);
    }

    #[test]
    fn bars_that_would_not_be_seen_are_refused_with_what_to_do() {
        assert_eq!(bars(40, 20, &[1.0; 20]).problem(), None);
        let problem = bars(40, 20, &[1.0; 21]).problem().unwrap();
        assert!(problem.contains("a width of 42 or more"), "{problem}");
    }
}

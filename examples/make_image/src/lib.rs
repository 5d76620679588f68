//! A tool that draws: what a model may ask for, how far the drawing is, and a PNG as a block of the answer.
//!
//! Copy the folder, and change `drawing`: what can be drawn, and the colour of a pixel. Everything else may stay.

mod answer;
mod drawing;
mod picture;

use std::time::Duration;

use worker::{Effect, Tool, ToolContext, ToolError, tool::Settings};

pub use self::{answer::Answer, drawing::Drawing, picture::Picture};

/// The tool.
pub struct MakeImage;

impl Tool for MakeImage {
    type Args = Picture;
    type Output = Answer;
    const NAME: &'static str = "make_image";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Draws a picture and returns it as a PNG: a bar chart of numbers, or a part of the Mandelbrot set. \
        Use it when the user wants to see numbers, or asks for a fractal.";

    fn settings(&self) -> Settings {
        Settings::default()
            .content()
            // The largest picture fits, however badly it compresses: see `picture`.
            .output_limit(8 * 1024 * 1024)
            .timeout(Duration::from_secs(60))
    }

    async fn call(&self, asked: Picture, told: ToolContext) -> Result<Answer, ToolError> {
        if let Some(problem) = asked.problem() {
            return Err(ToolError::business(problem).with_code("does_not_fit"));
        }
        let mut pixels = Vec::new();
        for row in 0..asked.height {
            // Between two rows others have their turn, and a tool that must end ends.
            told.proceed().await?;
            told.progress(f64::from(row) / f64::from(asked.height), "drawing");
            asked.row(row, &mut pixels);
        }
        told.progress(1.0, "compressing");
        let answer =
            told.blocking(move || asked.png(&pixels).map(|file| Answer::new(&asked, &file)));
        Ok(answer.await??)
    }
}

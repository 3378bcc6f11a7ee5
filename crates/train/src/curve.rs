//! The loss curve: in a terminal by blocks, and as SVG.
//!
//! Both show the mean loss of each step over the steps, from 0 up. In the terminal a column is the mean of the steps that
//! fall into it; in SVG losses on data that is not trained are points on a line of their own.

use crate::trainer::History;

/// What a run has seen, to be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Curve<'a> {
    history: &'a History,
}

/// Eighths of a cell.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width and height of the picture.
const PICTURE: (f64, f64) = (640.0, 320.0);
/// Where its axes begin: left, right, top, bottom.
const FRAME: (f64, f64, f64, f64) = (56.0, 624.0, 24.0, 280.0);

impl<'a> Curve<'a> {
    /// Of a run.
    pub fn new(history: &'a History) -> Curve<'a> {
        Curve { history }
    }

    /// Lines for a terminal: `height` of the curve, at most `width` columns, and the axis. None for a run without steps.
    pub fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let losses = &self.history.losses;
        if losses.is_empty() || width == 0 || height == 0 {
            return Vec::new();
        }
        let columns = width.min(losses.len());
        let means: Vec<f64> = (0..columns)
            .map(|column| {
                let part = &losses[column * losses.len() / columns..(column + 1) * losses.len() / columns];
                part.iter().sum::<f64>() / part.len() as f64
            })
            .collect();
        let top = means.iter().fold(f64::MIN_POSITIVE, |top, mean| top.max(*mean));
        let mut lines = Vec::with_capacity(height + 1);
        for row in (0..height).rev() {
            let label = if row + 1 == height { format!("{top:7.3}") } else { " ".repeat(7) };
            let cells = means.iter().map(|mean| {
                let eighths = (mean / top * (8 * height) as f64).round() as usize;
                BLOCKS[eighths.saturating_sub(8 * row).min(8)]
            });
            lines.push(format!("{label} │{}", cells.collect::<String>().trim_end()));
        }
        let count = losses.len();
        let steps = if count == 1 { "1 step".to_owned() } else { format!("{count} steps") };
        lines.push(format!("  0.000 └{} {steps}", "─".repeat(columns)));
        lines
    }

    /// A picture, an SVG document.
    pub fn svg(&self) -> String {
        let History { losses, evaluations } = self.history;
        let steps = losses.len().max(1) as f64;
        let all = losses.iter().copied().chain(evaluations.iter().map(|(_, loss)| *loss));
        let top = nice(all.fold(0.0, f64::max));
        let (left, right, above, below) = FRAME;
        let x = |step: f64| left + (right - left) * step / steps;
        let y = |loss: f64| below - (below - above) * loss / top;
        let mut svg = String::new();
        let mut line = |text: String| {
            svg += &text;
            svg.push('\n');
        };
        line(format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="12">"#,
            w = PICTURE.0,
            h = PICTURE.1
        ));
        line("<title>Loss of each step</title>".to_owned());
        line(format!(r##"<rect width="{}" height="{}" fill="#fff"/>"##, PICTURE.0, PICTURE.1));
        for part in 0..=4 {
            let loss = top * f64::from(part) / 4.0;
            line(format!(
                r##"<path d="M{left} {y:.1}H{right}" stroke="#ddd"/><text x="{text}" y="{base:.1}" text-anchor="end" fill="#555">{loss:.2}</text>"##,
                y = y(loss),
                text = left - 8.0,
                base = y(loss) + 4.0
            ));
        }
        for part in 0..=4 {
            let step = (steps * f64::from(part) / 4.0).round();
            line(format!(
                r##"<text x="{x:.1}" y="{y}" text-anchor="middle" fill="#555">{step}</text>"##,
                x = x(step),
                y = below + 18.0
            ));
        }
        line(format!(
            r##"<text x="{}" y="{}" text-anchor="middle" fill="#555">steps; loss in nats a token</text>"##,
            (left + right) / 2.0,
            below + 34.0
        ));
        let points = |values: &mut dyn Iterator<Item = (f64, f64)>| {
            let points: Vec<String> =
                values.map(|(step, loss)| format!("{:.1},{:.1}", x(step), y(loss))).collect();
            points.join(" ")
        };
        // The loss of step s is that before it, after s - 1 steps.
        let trained = points(&mut losses.iter().enumerate().map(|(step, loss)| (step as f64, *loss)));
        line(format!(r##"<polyline points="{trained}" fill="none" stroke="#1f6fb2" stroke-width="1.5"/>"##));
        legend(&mut line, right - 130.0, "#1f6fb2", "training");
        if !evaluations.is_empty() {
            let held_out = points(&mut evaluations.iter().map(|(step, loss)| (*step as f64, *loss)));
            line(format!(
                r##"<polyline points="{held_out}" fill="none" stroke="#c2571a" stroke-width="1.5" stroke-dasharray="4 3"/>"##
            ));
            for (step, loss) in evaluations {
                let (x, y) = (x(*step as f64), y(*loss));
                line(format!(r##"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="#c2571a"/>"##));
            }
            legend(&mut line, right - 60.0, "#c2571a", "held out");
        }
        line("</svg>".to_owned());
        svg
    }
}

fn legend(line: &mut impl FnMut(String), x: f64, colour: &str, name: &str) {
    line(format!(r#"<text x="{x}" y="16" fill="{colour}">{name}</text>"#));
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is no smaller, or 1 for no number.
fn nice(top: f64) -> f64 {
    if !(top.is_finite() && top > 0.0) {
        return 1.0;
    }
    let mut power = 1.0;
    while power > top {
        power /= 10.0;
    }
    while power * 10.0 <= top {
        power *= 10.0;
    }
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * power).into_iter().find(|nice| *nice >= top).unwrap_or(top)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(losses: &[f64], evaluations: &[(u64, f64)]) -> History {
        History { losses: losses.to_vec(), evaluations: evaluations.to_vec() }
    }

    #[test]
    fn a_terminal_shows_means_by_eighths() {
        let check = |losses: &[f64], width, height, expected: &[&str]| {
            assert_eq!(Curve::new(&history(losses, &[])).lines(width, height), expected);
        };
        check(&[], 10, 2, &[]);
        check(&[2.0], 10, 1, &["  2.000 │█", "  0.000 └─ 1 step"]);
        check(&[4.0, 2.0, 1.0, 0.5], 9, 2, &["  4.000 │█", "        │██▄▂", "  0.000 └──── 4 steps"]);
        check(&[4.0, 2.0, 1.0, 0.5], 2, 1, &["  3.000 │█▂", "  0.000 └── 4 steps"]);
        check(&[0.0, 0.0], 9, 1, &["  0.000 │", "  0.000 └── 2 steps"]);
    }

    /// Every element that is opened is closed, in its order; no text holds a bare sign.
    fn well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains(['>', '&']), "{}", &rest[..start]);
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.trim_start_matches('/').split(' ').next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    }

    #[test]
    fn a_picture_is_well_formed_and_inside_its_frame() {
        let long: Vec<f64> = (0..500).map(|step| 3.0 / (1.0 + f64::from(step))).collect();
        for losses in [&[][..], &[1.0], &[3.0, 0.2, 0.1], &long] {
            for evaluations in [&[][..], &[(0, 5.5)], &[(0, 2.0), (1, 0.5)]] {
                let history = history(losses, evaluations);
                let svg = Curve::new(&history).svg();
                well_formed(&svg);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert_eq!(svg.matches("<circle").count(), evaluations.len());
                let points = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
                assert_eq!(points.split_whitespace().count(), losses.len());
                for point in points.split_whitespace() {
                    let (x, y) = point.split_once(',').unwrap();
                    let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                    assert!((FRAME.0..=FRAME.1).contains(&x) && (FRAME.2..=FRAME.3).contains(&y), "{point}");
                }
            }
        }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (top, expected) in
            [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (2.1, 2.5), (3.0, 5.0), (7.0, 10.0), (90.0, 100.0)]
        {
            assert!((nice(top) - expected).abs() < 1e-9, "{top} {}", nice(top));
        }
    }
}

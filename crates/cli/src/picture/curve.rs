//! `curve.svg`: how training went, as two panels, loss and accuracy over the epochs.

use std::fmt::Write;

/// What was measured after an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EpochMetrics {
    /// Mean loss over the training set.
    pub(crate) train_loss: f64,
    /// Mean loss over the test set.
    pub(crate) test_loss: f64,
    /// Fraction of the test set that is classified right.
    pub(crate) test_accuracy: f64,
}

/// The whole SVG file. `epochs[0]` is epoch 1. Each panel has its lines, a legend with the last values and axes with
/// round ticks; a value that is not finite leaves a gap in its line and is named in the legend.
pub(crate) fn curve_svg(epochs: &[EpochMetrics]) -> String {
    let line = |label, color, value: fn(&EpochMetrics) -> f64| Line {
        label,
        color,
        values: epochs.iter().map(value).collect(),
    };
    let loss = Panel {
        title: "loss",
        lines: vec![
            line("train", BLUE, |epoch| epoch.train_loss),
            line("test", ORANGE, |epoch| epoch.test_loss),
        ],
        least: f64::NEG_INFINITY,
        most: f64::INFINITY,
    };
    let accuracy = Panel {
        title: "accuracy",
        lines: vec![line("test", ORANGE, |epoch| epoch.test_accuracy)],
        least: 0.0,
        most: 1.0,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    loss.draw(&mut svg, LEFT, epochs.len());
    accuracy.draw(&mut svg, LEFT + PANEL_WIDTH + BETWEEN, epochs.len());
    svg.push_str("</svg>\n");
    svg
}

const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 280.0;
const LEFT: f64 = 72.0;
const BETWEEN: f64 = 96.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 60.0;
const WIDTH: f64 = LEFT + 2.0 * PANEL_WIDTH + BETWEEN + RIGHT;
const HEIGHT: f64 = TOP + PANEL_HEIGHT + BOTTOM;

const BLUE: &str = "#1f6fb4";
const ORANGE: &str = "#d9620f";
const INK: &str = "#202124";
const GREY: &str = "#5f6368";
const GRID: &str = "#e6e8eb";

/// Up to so many epochs each has a dot of its own.
const MOST_DOTS: usize = 30;

struct Panel {
    title: &'static str,
    lines: Vec<Line>,
    /// Bounds that the quantity has by its nature: the axis does not go beyond.
    least: f64,
    most: f64,
}

struct Line {
    label: &'static str,
    color: &'static str,
    values: Vec<f64>,
}

impl Panel {
    fn draw(&self, svg: &mut String, left: f64, epochs: usize) {
        let y_axis = self.y_axis();
        let x_axis = epoch_axis(epochs);
        let x_of = |epoch: f64| left + PANEL_WIDTH * x_axis.fraction(epoch);
        let y_of = |value: f64| TOP + PANEL_HEIGHT * (1.0 - y_axis.fraction(value));
        let (right, bottom) = (left + PANEL_WIDTH, TOP + PANEL_HEIGHT);

        text(
            svg,
            (left, TOP - 36.0),
            "start",
            INK,
            "font-size=\"16\" font-weight=\"bold\"",
            self.title,
        );
        for tick in y_axis.ticks() {
            let y = y_of(tick);
            rule(svg, (left, y), (right, y), GRID);
            text(
                svg,
                (left - 10.0, y + 4.5),
                "end",
                GREY,
                "",
                &y_axis.label(tick),
            );
        }
        rule(svg, (left, bottom), (right, bottom), GREY);
        for tick in x_axis.ticks() {
            let x = x_of(tick);
            rule(svg, (x, bottom), (x, bottom + 5.0), GREY);
            text(
                svg,
                (x, bottom + 21.0),
                "middle",
                GREY,
                "",
                &x_axis.label(tick),
            );
        }
        text(
            svg,
            (left + PANEL_WIDTH / 2.0, bottom + 44.0),
            "middle",
            GREY,
            "",
            "epoch",
        );
        if epochs == 0 {
            text(
                svg,
                (left + PANEL_WIDTH / 2.0, TOP + PANEL_HEIGHT / 2.0),
                "middle",
                GREY,
                "",
                "no epoch yet",
            );
        }

        let mut legend_left = left;
        for line in &self.lines {
            legend_left += line.draw_legend(svg, legend_left);
            for run in line.runs() {
                let points: Vec<(f64, f64)> = run
                    .iter()
                    .map(|&(epoch, value)| (x_of(epoch), y_of(value)))
                    .collect();
                polyline(svg, line.color, &points);
                let dots = if epochs <= MOST_DOTS {
                    &points[..]
                } else {
                    &points[points.len() - 1..]
                };
                dots.iter().for_each(|&point| dot(svg, line.color, point));
            }
        }
    }

    /// An axis over all finite values of all lines.
    fn y_axis(&self) -> Axis {
        let values = || {
            self.lines.iter().flat_map(|line| {
                line.values
                    .iter()
                    .copied()
                    .filter(|value| value.is_finite())
            })
        };
        let min = values().fold(f64::INFINITY, f64::min);
        let max = values().fold(f64::NEG_INFINITY, f64::max);
        if min > max {
            return Axis::over(0.0, 1.0, 5);
        }
        // A loss is read against zero, unless all of it is far away from zero; the same for any bounded quantity.
        let min = if min > 0.0 && max > 2.0 * min && self.least != 0.0 {
            0.0
        } else {
            min
        };
        let axis = Axis::over(min.max(-LARGEST), max.min(LARGEST), 5);
        Axis {
            low: axis.low.max(self.least.min(min)),
            high: axis.high.min(self.most.max(max)),
            ..axis
        }
    }
}

/// Values beyond are drawn at the edge: their differences would overflow.
const LARGEST: f64 = 1e300;

impl Line {
    /// Stretches of epochs, numbered from 1, with finite values.
    fn runs(&self) -> Vec<Vec<(f64, f64)>> {
        let numbered: Vec<(f64, f64)> = (1..)
            .map(f64::from)
            .zip(self.values.iter().copied())
            .collect();
        let runs = numbered.split(|(_, value)| !value.is_finite());
        runs.filter(|run| !run.is_empty())
            .map(<[_]>::to_vec)
            .collect()
    }

    /// Draws "test 0.0123" with a stroke of the line's colour before it; gives the width it takes.
    fn draw_legend(&self, svg: &mut String, left: f64) -> f64 {
        let Some(last) = self.values.last() else {
            return 0.0;
        };
        let y = TOP - 14.0;
        let gaps = self
            .values
            .iter()
            .filter(|value| !value.is_finite())
            .count();
        let gaps = if gaps > 0 {
            format!(" ({gaps} not finite)")
        } else {
            String::new()
        };
        let entry = format!("{} {}{gaps}", self.label, significant(*last));
        polyline(svg, self.color, &[(left, y - 4.5), (left + 20.0, y - 4.5)]);
        text(svg, (left + 26.0, y), "start", INK, "", &entry);
        26.0 + 7.5 * entry.len() as f64 + 20.0
    }
}

/// A value with four decimals or, where these say little, four significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => (if value > 0.0 { "+inf" } else { "-inf" }).to_owned(),
        0.0 => "0".to_owned(),
        size if (0.001..10_000.0).contains(&size) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

/// A linear axis with ticks at the multiples of `step` from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// From the multiple of a round step (1, 2 or 5 times a power of ten) at or below `min` to the one at or above
    /// `max`, with about `intervals` steps. Equal values get room on both sides.
    fn over(min: f64, max: f64, intervals: usize) -> Self {
        // Less than a millionth of the values cannot be told on the labels.
        let least_span = 1e-6 * min.abs().max(max.abs());
        let span = if max - min > least_span {
            max - min
        } else {
            (0.2 * max.abs()).max(f64::MIN_POSITIVE * 1e20)
        };
        let (min, max) = if max - min > least_span {
            (min, max)
        } else {
            (min - span / 2.0, max + span / 2.0)
        };
        let rough = span / intervals as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(10.0 * power);
        // A millionth of a step forgives what rounding did to a value that is a multiple already.
        let (low, high) = (
            (min / step + 1e-6).floor() * step,
            (max / step - 1e-6).ceil() * step,
        );
        Self { low, high, step }
    }

    fn fraction(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let first = (self.low / self.step - 1e-6).ceil();
        let last = (self.high / self.step + 1e-6).floor();
        (0..=(last - first) as usize)
            .map(|index| (first + index as f64) * self.step)
            .collect()
    }

    /// As many decimals as the step needs.
    fn label(&self, tick: f64) -> String {
        let largest = self.low.abs().max(self.high.abs());
        if largest >= 1e6 || self.step < 1e-5 {
            return if tick.abs() < self.step / 2.0 {
                "0".to_owned()
            } else {
                format!("{tick:.1e}")
            };
        }
        let decimals = (-(self.step * 1.001).log10().floor()).max(0.0) as usize;
        format!("{tick:.decimals$}")
    }
}

/// The axis of epochs 1 to `epochs`: whole numbers only, and one epoch stands in the middle.
fn epoch_axis(epochs: usize) -> Axis {
    let last = epochs.max(1) as f64;
    let step = Axis::over(0.0, last, 8).step.max(1.0);
    if epochs <= 1 {
        Axis {
            low: 0.5,
            high: 1.5,
            step,
        }
    } else {
        Axis {
            low: 1.0,
            high: last,
            step,
        }
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, color: &str, style: &str, text: &str) {
    let style = if style.is_empty() {
        String::new()
    } else {
        format!(" {style}")
    };
    let element = format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\"{style}>{text}</text>\n"
    );
    svg.push_str(&element);
}

fn rule(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) {
    let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
    svg.push_str(&format!("<line {ends} stroke=\"{color}\"/>\n"));
}

fn dot(svg: &mut String, color: &str, (x, y): (f64, f64)) {
    svg.push_str(&format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>\n"
    ));
}

fn polyline(svg: &mut String, color: &str, points: &[(f64, f64)]) {
    let mut path = String::new();
    for (x, y) in points {
        write!(path, "{x:.1},{y:.1} ").expect("a String takes any text");
    }
    let style = "stroke-width=\"2\" stroke-linejoin=\"round\" stroke-linecap=\"round\"";
    svg.push_str(&format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" {style}/>\n",
        path.trim_end()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(count: usize, metrics: impl Fn(f64) -> (f64, f64, f64)) -> Vec<EpochMetrics> {
        let epoch = |index: usize| {
            let (train_loss, test_loss, test_accuracy) = metrics(index as f64);
            EpochMetrics {
                train_loss,
                test_loss,
                test_accuracy,
            }
        };
        (0..count).map(epoch).collect()
    }

    /// Every number in a position attribute lies within the picture; in particular it is a number.
    fn assert_sound(svg: &str) {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for (attribute, limit) in [
            ("x", WIDTH),
            ("y", HEIGHT),
            ("cx", WIDTH),
            ("cy", HEIGHT),
            ("x1", WIDTH),
            ("y2", HEIGHT),
        ] {
            for part in svg.split(&format!(" {attribute}=\"")).skip(1) {
                let number: f64 = part[..part.find('"').unwrap()].parse().unwrap();
                assert!((0.0..=limit).contains(&number), "{attribute}={number}");
            }
        }
        for part in svg.split("points=\"").skip(1) {
            for number in part[..part.find('"').unwrap()].split([' ', ',']) {
                assert!((0.0..=WIDTH).contains(&number.parse().unwrap()), "{number}");
            }
        }
    }

    #[test]
    fn a_usual_run_has_three_lines_and_its_last_values() {
        let svg = curve_svg(&epochs(10, |i| {
            (2.3 / (1.0 + i), 2.0 / (1.0 + i), 1.0 - 0.4 / (1.0 + i))
        }));
        assert_sound(&svg);
        assert_eq!(
            svg.matches("<polyline").count(),
            3 + 3,
            "three lines, three legend strokes"
        );
        assert_eq!(svg.matches("<circle").count(), 30);
        for legend in [">train 0.2300<", ">test 0.2000<", ">test 0.9600<"] {
            assert!(svg.contains(legend), "{legend} is missing");
        }
        assert_eq!(svg.matches(">epoch<").count(), 2);
    }

    #[test]
    fn odd_values_are_drawn_all_the_same() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (count, metrics) in [
            (0, (0.0, 0.0, 0.0)),
            (1, (0.5, 0.7, 0.9)),
            (3, (0.0, 0.0, 0.0)),
            (3, (1.0, 1.0, 1.0)),
            (2, (-3.0, 5.0, 0.0)),
            (2, (nan, inf, -inf)),
            (2, (f64::MAX, f64::MIN, 1.0)),
            (2, (5e-324, 1e-310, 1e-300)),
            (500, (1e7, 1e-9, 0.1)),
        ] {
            assert_sound(&curve_svg(&epochs(count, |_| metrics)));
        }
        let diverged = epochs(6, |i| {
            (
                if i > 3.0 { nan } else { 1.0 + i },
                if i == 1.0 { inf } else { 2.0 },
                0.1,
            )
        });
        let svg = curve_svg(&diverged);
        assert_sound(&svg);
        assert!(
            svg.contains(">train NaN (2 not finite)<"),
            "the legend says so"
        );
        assert!(svg.contains(">test 2.0000 (1 not finite)<"));
        // The line of the test loss is in two parts: 4 + 1 lines and 3 legend strokes.
        assert_eq!(svg.matches("<polyline").count(), 1 + 2 + 1 + 3);
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let labels = |axis: Axis| {
            axis.ticks()
                .into_iter()
                .map(|tick| axis.label(tick))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(Axis::over(0.0, 2.3, 5)),
            ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]
        );
        assert_eq!(
            labels(Axis::over(0.91, 0.99, 5)),
            ["0.90", "0.92", "0.94", "0.96", "0.98", "1.00"]
        );
        assert_eq!(
            labels(Axis::over(0.0, 100.0, 5)),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(Axis::over(0.0, 3e9, 5)),
            ["0", "1.0e9", "2.0e9", "3.0e9"]
        );
        let constant = Axis::over(0.5, 0.5, 5);
        assert!(constant.low < 0.5 && 0.5 < constant.high);
        assert_eq!(labels(epoch_axis(1)), ["1"]);
        assert_eq!(labels(epoch_axis(3)), ["1", "2", "3"]);
        assert_eq!(
            labels(epoch_axis(40)),
            ["5", "10", "15", "20", "25", "30", "35", "40"]
        );
    }

    #[test]
    fn an_accuracy_axis_ends_at_one() {
        let panel = |values: &[f64]| Panel {
            title: "accuracy",
            lines: vec![Line {
                label: "test",
                color: BLUE,
                values: values.to_vec(),
            }],
            least: 0.0,
            most: 1.0,
        };
        assert_eq!(panel(&[1.0, 1.0]).y_axis().high, 1.0);
        assert_eq!(panel(&[0.0, 0.0]).y_axis().low, 0.0);
        // Without the bound the axis would go on to 1.0 and 1.05.
        let axis = panel(&[0.7, 0.99]).y_axis();
        assert!(
            (axis.low - 0.7).abs() < 1e-9 && axis.high == 1.0,
            "{axis:?}"
        );
    }
}

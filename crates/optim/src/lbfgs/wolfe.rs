//! A line search that fulfils the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

use fireclay_tensor::{Result, Tensor};

use super::{dot, largest};

/// How much of the slope the loss must gain.
const ENOUGH: f64 = 1e-4;
/// How much of the slope may be left.
const FLAT: f64 = 0.9;
/// How often the loss is asked for, at most.
const MOST: u64 = 25;

/// A place on the line.
#[derive(Clone)]
pub(super) struct Point {
    pub(super) length: f64,
    pub(super) loss: f64,
    pub(super) grad: Tensor,
    /// The derivative along the line.
    pub(super) slope: f64,
}

pub(super) struct Found {
    pub(super) at: Point,
    pub(super) evaluations: u64,
}

/// Searches from `start`, where the length is 0, along `direction`, first at `length`. `evaluate` gives loss and gradient at a length.
pub(super) fn search(
    length: f64,
    start: Point,
    direction: &Tensor,
    tolerance_change: f64,
    evaluate: &mut dyn FnMut(f64) -> Result<(f64, Tensor)>,
) -> Result<Found> {
    let extent = largest(direction)?;
    let mut evaluations = 0;
    let mut point = |length: f64| -> Result<Point> {
        let (loss, grad) = evaluate(length)?;
        evaluations += 1;
        let slope = dot(&grad, direction)?;
        Ok(Point {
            length,
            loss,
            grad,
            slope,
        })
    };
    let too_high = |at: &Point| at.loss > start.loss + ENOUGH * at.length * start.slope;
    let is_flat = |at: &Point| at.slope.abs() <= -FLAT * start.slope;

    // Goes on until the least lies between two places.
    let (mut before, mut at) = (start.clone(), point(length)?);
    let mut rounds = 0;
    let mut bracket = loop {
        if rounds == MOST {
            break [start.clone(), at];
        }
        if too_high(&at) || (rounds > 1 && at.loss >= before.loss) {
            break [before, at];
        }
        if is_flat(&at) {
            return Ok(Found { at, evaluations });
        }
        if at.slope >= 0.0 {
            break [before, at];
        }
        let within = (
            at.length + 0.01 * (at.length - before.length),
            at.length * 10.0,
        );
        let next = cubic(&before, &at, within);
        before = at;
        at = point(next)?;
        rounds += 1;
    };

    // Narrows the bracket; `low` is the place of the lower loss.
    let mut low = usize::from(bracket[0].loss > bracket[1].loss);
    let mut slow = false;
    while rounds < MOST {
        let (first, last) = (
            bracket[0].length.min(bracket[1].length),
            bracket[0].length.max(bracket[1].length),
        );
        if (last - first) * extent < tolerance_change {
            break;
        }
        let mut length = cubic(&bracket[0], &bracket[1], (first, last));
        // A place too near to an end is moved away from it, the second time in a row or at the end itself.
        let margin = 0.1 * (last - first);
        if (last - length).min(length - first) < margin {
            if slow || length >= last || length <= first {
                length = match (length - last).abs() < (length - first).abs() {
                    true => last - margin,
                    false => first + margin,
                };
                slow = false;
            } else {
                slow = true;
            }
        } else {
            slow = false;
        }
        let at = point(length)?;
        rounds += 1;
        let high = 1 - low;
        if too_high(&at) || at.loss >= bracket[low].loss {
            bracket[high] = at;
            low = usize::from(bracket[0].loss > bracket[1].loss);
            continue;
        }
        let done = is_flat(&at);
        if !done && at.slope * (bracket[high].length - bracket[low].length) >= 0.0 {
            bracket[high] = bracket[low].clone();
        }
        bracket[low] = at;
        if done {
            break;
        }
    }
    let [first, last] = bracket;
    Ok(Found {
        at: if low == 0 { first } else { last },
        evaluations,
    })
}

/// Where the cubic through both places, with their slopes, is least, kept within bounds.
fn cubic(a: &Point, b: &Point, (least, most): (f64, f64)) -> f64 {
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.length - b.length);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 || square.is_nan() {
        return (least + most) / 2.0;
    }
    let d2 = square.sqrt();
    let place = if a.length <= b.length {
        let share = (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2);
        b.length - (b.length - a.length) * share
    } else {
        let share = (a.slope + d2 - d1) / (a.slope - b.slope + 2.0 * d2);
        a.length - (a.length - b.length) * share
    };
    place.max(least).min(most)
}

//! `Fused`: the optimizer around a rule, a multi-output formula run over all parameters in one launch.

use std::collections::BTreeMap;

use fireclay_core::pointwise::Pointwise;
use fireclay_tensor::{
    DType, Device, Error, Parameter, Purpose, Result, StateDict, StateDictReader, Tensor,
    as_one_call, no_grad, update,
};

use crate::optimizer::Optimizer;

/// What tells one optimizer from another: its options, the tensors it keeps per parameter, and its formula. Implement it to
/// make an optimizer of your own.
pub trait Rule: Clone + Send + Sync + 'static {
    /// The optimizer's name.
    const NAME: &'static str;

    /// Refuses options out of their range.
    fn check(&self) -> Result<()>;

    /// The tensors kept per parameter, of its shape, zeros at first, by PyTorch's names.
    fn state_names(&self) -> &'static [&'static str];

    /// The names of the tensors kept for a parameter of this shape: where they depend on it (Adafactor), else
    /// [`state_names`](Rule::state_names).
    fn state_names_for(&self, shape: &[usize]) -> &'static [&'static str] {
        let _ = shape;
        self.state_names()
    }

    /// The shape of the `number`-th of them, where it is not the parameter's.
    fn state_shape(&self, number: usize, shape: &[usize]) -> Vec<usize> {
        let _ = number;
        shape.to_vec()
    }

    /// What the `number`-th of them is filled with at first.
    fn initial_state(&self, number: usize) -> f64 {
        let _ = number;
        0.0
    }

    /// The numbers kept per parameter besides its count of steps, by PyTorch's names.
    fn number_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// What these numbers are before the first step.
    fn first_numbers(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Changes these numbers after a step, which is counted from 1.
    fn next_numbers(&self, step: u64, numbers: &mut [f64]) {
        let _ = (step, numbers);
    }

    /// Refuses a parameter that the rule has no formula for.
    fn check_parameter(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// What a schedule that cycles momentum sets: the momentum, or the first beta. None if there is none.
    fn momentum(&self) -> Option<f64> {
        None
    }

    /// Sets what [`momentum`](Rule::momentum) gives.
    fn set_momentum(&mut self, momentum: f64) {
        let _ = momentum;
    }

    /// All options by PyTorch's names, true as 1 and false as 0.
    fn options(&self) -> Vec<(&'static str, f64)>;

    /// The same rule with the options that `value` gives by name.
    fn with_options(&self, value: &mut dyn FnMut(&'static str) -> f64) -> Self;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Changes the parameters of `batch`, whose step this is, counted from 1.
    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()>;
}

/// Parameters at the same step, of one dtype and device, with their states and gradients.
pub struct Batch<'a> {
    name: &'static str,
    /// Of each parameter: itself, its states in the rule's order, its gradient.
    sets: Vec<Vec<&'a Tensor>>,
    numbers: &'a [f64],
}

impl<'a> Batch<'a> {
    /// Of each parameter: itself, its states in the rule's order, its gradient. For rules that aren't one pointwise formula.
    pub fn sets(&self) -> &[Vec<&'a Tensor>] {
        &self.sets
    }

    /// The numbers that the parameters have kept, the same for all of them.
    pub fn numbers(&self) -> &[f64] {
        self.numbers
    }

    /// Runs `formula` over all parameters in one launch. Its inputs are parameter, states, gradient; its outputs the new parameter
    /// and the new states. `N` is 2 and `M` is 1 more than the number of states.
    ///
    /// # Panics
    /// `N` is not so, which is a mistake in the rule.
    pub fn update<const N: usize, const M: usize>(
        &self,
        formula: impl Pointwise<N, M>,
    ) -> Result<()> {
        const { assert!(N == M + 1) };
        let sets: Vec<[&Tensor; N]> = self
            .sets
            .iter()
            .map(|set| {
                <[&Tensor; N]>::try_from(set.as_slice())
                    .expect("the rule's formula takes the parameter, each state and the gradient")
            })
            .collect();
        update(self.name, formula, &sets)
    }
}

/// An optimizer made of a [`Rule`]. State is made at a parameter's first step, is kept with its dtype and on its device, and
/// moves with it.
pub struct Fused<R: Rule> {
    groups: Vec<Group<R>>,
}

struct Group<R> {
    rule: R,
    slots: Vec<Slot>,
}

struct Slot {
    parameter: Parameter,
    /// None until the parameter's first step.
    state: Option<State>,
}

struct State {
    /// Steps done.
    step: u64,
    numbers: Vec<f64>,
    tensors: Vec<Tensor>,
}

impl<R: Rule> Fused<R> {
    /// An optimizer of these parameters, as one group.
    ///
    /// # Errors
    /// There are no parameters, one is given twice, or an option is out of range.
    pub fn new(parameters: impl IntoIterator<Item = Parameter>, options: R) -> Result<Fused<R>> {
        let mut optimizer = Fused { groups: Vec::new() };
        optimizer.add_param_group(parameters, options)?;
        Ok(optimizer)
    }

    /// Adds parameters with options of their own (`Optimizer.add_param_group`) and returns the group's number.
    ///
    /// # Errors
    /// As [`new`](Fused::new); also if a parameter is in another group.
    pub fn add_param_group(
        &mut self,
        parameters: impl IntoIterator<Item = Parameter>,
        options: R,
    ) -> Result<usize> {
        options.check()?;
        let mut slots: Vec<Slot> = Vec::new();
        let known = self.groups.iter().flat_map(|group| &group.slots);
        let mut ids: std::collections::HashSet<_> = known.map(|slot| slot.parameter.id()).collect();
        for parameter in parameters {
            if !ids.insert(parameter.id()) {
                return Err(Error::argument(
                    R::NAME,
                    format!("{parameter:?} is given twice, it would be changed twice in a step"),
                ));
            }
            options.check_parameter(&parameter.tensor())?;
            slots.push(Slot {
                parameter,
                state: None,
            });
        }
        if slots.is_empty() {
            return Err(Error::argument(
                R::NAME,
                "there are no parameters to change",
            ));
        }
        self.groups.push(Group {
            rule: options,
            slots,
        });
        Ok(self.groups.len() - 1)
    }

    /// The options of a group.
    ///
    /// # Panics
    /// There is no such group.
    pub fn options(&self, group: usize) -> &R {
        &self.groups[group].rule
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.groups.iter().flat_map(|group| &group.slots)
    }
}

/// What goes into one launch together: step, bits of the kept numbers, device, dtypes of parameter and gradient.
type BatchKey = (u64, Vec<u64>, Device, DType, DType);

/// A parameter about to be changed: its slot's number, its tensor, its gradient.
type Ready = (usize, Tensor, Tensor);

/// A state about to be put into the slot of this number.
type NewState = (usize, State);

impl<R: Rule> Group<R> {
    /// The parameters that have a gradient, and the states that they lack or that must move to them. Changes nothing.
    fn prepare(&self) -> Result<(Vec<Ready>, Vec<NewState>)> {
        let (mut ready, mut new) = (Vec::new(), Vec::new());
        for (number, slot) in self.slots.iter().enumerate() {
            let tensor = slot.parameter.tensor();
            if let Some(grad) = tensor.grad() {
                if let Some(state) = slot.new_state(&self.rule, &tensor)? {
                    new.push((number, state));
                }
                ready.push((number, tensor, grad));
            }
        }
        Ok((ready, new))
    }

    fn step(&mut self, ready: &[Ready]) -> Result<()> {
        let mut batches: BTreeMap<BatchKey, Vec<&Ready>> = BTreeMap::new();
        for one in ready {
            let (number, tensor, grad) = one;
            let state = self.slots[*number].state.as_ref();
            let (done, numbers) =
                state.map_or((0, Vec::new()), |state| (state.step, state.numbers.clone()));
            let key = (
                done.saturating_add(1),
                numbers.into_iter().map(f64::to_bits).collect(),
                tensor.device(),
                tensor.dtype(),
                grad.dtype(),
            );
            batches.entry(key).or_default().push(one);
        }
        for ((step, numbers, ..), ready) in batches {
            let mut numbers: Vec<f64> = numbers.into_iter().map(f64::from_bits).collect();
            self.step_batch(step, &mut numbers, &ready)?;
        }
        Ok(())
    }

    /// One launch. The steps of its parameters are counted with it, so that they stay right where a later launch fails.
    fn step_batch(&mut self, step: u64, numbers: &mut [f64], ready: &[&Ready]) -> Result<()> {
        let sets = ready.iter().map(|(number, tensor, grad)| {
            let states = self.slots[*number].state.iter();
            let mut set = vec![tensor];
            set.extend(states.flat_map(|state| &state.tensors));
            set.push(grad);
            set
        });
        let batch = Batch {
            name: R::NAME,
            sets: sets.collect(),
            numbers,
        };
        self.rule.step(step, &batch)?;
        self.rule.next_numbers(step, numbers);
        for (number, ..) in ready {
            if let Some(state) = &mut self.slots[*number].state {
                state.step = step;
                state.numbers.copy_from_slice(numbers);
            }
        }
        Ok(())
    }
}

impl Slot {
    /// The state that the parameter needs where it is now, unless the slot has it.
    fn new_state<R: Rule>(&self, rule: &R, parameter: &Tensor) -> Result<Option<State>> {
        let (dtype, device) = (parameter.dtype(), parameter.device());
        let count = rule.state_names_for(parameter.shape()).len();
        let first = |number: usize| {
            let shape = rule.state_shape(number, parameter.shape());
            Tensor::full_of(&shape, rule.initial_state(number), dtype, device)
        };
        let (step, numbers, tensors) = match &self.state {
            None => {
                let tensors = (0..count).map(first).collect::<Result<Vec<_>>>()?;
                (0, rule.first_numbers(), tensors)
            }
            Some(state) => {
                let fits = |tensor: &Tensor| tensor.dtype() == dtype && tensor.device() == device;
                if state.tensors.iter().all(fits) && state.tensors.len() == count {
                    return Ok(None);
                }
                // An option that was changed (a momentum of 0) may have changed what is kept.
                let moved = |number: usize| match state.tensors.get(number) {
                    Some(tensor) => tensor.to(device)?.to_dtype(dtype),
                    None => first(number),
                };
                let tensors = (0..count).map(moved).collect::<Result<Vec<_>>>()?;
                (state.step, state.numbers.clone(), tensors)
            }
        };
        Ok(Some(State::of(step, numbers, tensors)))
    }
}

impl State {
    fn of(step: u64, numbers: Vec<f64>, tensors: Vec<Tensor>) -> State {
        for tensor in &tensors {
            tensor.count_as(Purpose::Optimizer);
        }
        State {
            step,
            numbers,
            tensors,
        }
    }
}

impl<R: Rule> Optimizer for Fused<R> {
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let step = || {
            // All states are made before any is put in place: where memory ends, nothing was changed.
            let prepared = self.groups.iter().map(Group::prepare);
            let prepared = prepared.collect::<Result<Vec<_>>>()?;
            let mut batches = Vec::with_capacity(prepared.len());
            for (group, (ready, new)) in self.groups.iter_mut().zip(prepared) {
                for (number, state) in new {
                    group.slots[number].state = Some(state);
                }
                batches.push(ready);
            }
            let mut groups = self.groups.iter_mut().zip(&batches);
            groups.try_for_each(|(group, ready)| group.step(ready))
        };
        as_one_call(|| no_grad(step))
    }

    fn zero_grad(&self) {
        for slot in self.slots() {
            slot.parameter.zero_grad();
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.slots().map(|slot| slot.parameter.clone()).collect()
    }

    fn num_groups(&self) -> usize {
        self.groups.len()
    }

    fn lr(&self, group: usize) -> f64 {
        self.groups[group].rule.lr()
    }

    fn set_lr(&mut self, group: usize, lr: f64) {
        self.groups[group].rule.set_lr(lr);
    }

    fn momentum(&self, group: usize) -> Option<f64> {
        self.groups[group].rule.momentum()
    }

    fn set_momentum(&mut self, group: usize, momentum: f64) {
        self.groups[group].rule.set_momentum(momentum);
    }

    fn state_dict(&self) -> StateDict {
        let mut saved = StateDict::default();
        for (number, group) in self.groups.iter().enumerate() {
            let options = group.rule.options().into_iter();
            saved
                .numbers
                .extend(options.map(|(name, value)| (option_name(number, name), value)));
            let count = group.slots.len() as f64;
            saved.numbers.push((option_name(number, COUNT), count));
        }
        let slots = self.groups.iter().flat_map(|group| {
            let rule = &group.rule;
            group.slots.iter().map(move |slot| (rule, slot))
        });
        for (number, (rule, slot)) in slots.enumerate() {
            let Some(state) = &slot.state else { continue };
            let names = rule.state_names_for(slot.parameter.tensor().shape());
            saved
                .numbers
                .push((state_name(number, STEP), state.step as f64));
            let kept = rule.number_names().iter().zip(&state.numbers);
            let kept = kept.map(|(name, value)| (state_name(number, name), *value));
            saved.numbers.extend(kept);
            let tensors = names.iter().zip(&state.tensors);
            let tensors = tensors.map(|(name, tensor)| (state_name(number, name), tensor.clone()));
            saved.tensors.extend(tensors);
        }
        saved
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new(R::NAME, state);
        let mut rules = Vec::with_capacity(self.groups.len());
        for (number, group) in self.groups.iter().enumerate() {
            let count = reader.number(&option_name(number, COUNT));
            if count != group.slots.len() as f64 {
                let expected = group.slots.len();
                reader.mismatch(format!(
                    "group {number} (expected {expected} parameters, got {count})"
                ));
            }
            rules.push(
                group
                    .rule
                    .with_options(&mut |name| reader.number(&option_name(number, name))),
            );
        }
        let mut loaded: Vec<Option<State>> = Vec::new();
        let slots = self
            .groups
            .iter()
            .zip(&rules)
            .flat_map(|(group, rule)| group.slots.iter().map(move |slot| (rule, slot)));
        for (number, (rule, slot)) in slots.enumerate() {
            let step_name = state_name(number, STEP);
            if !reader.has(&step_name) {
                loaded.push(None);
                continue;
            }
            let step = reader.number(&step_name) as u64;
            let numbers = rule.number_names().iter();
            let numbers = numbers.map(|name| reader.number(&state_name(number, name)));
            let numbers = numbers.collect();
            let like = slot.parameter.tensor();
            let names = rule.state_names_for(like.shape());
            let mut tensors = Vec::with_capacity(names.len());
            for (place, name) in names.iter().enumerate() {
                let shape = rule.state_shape(place, like.shape());
                let expected = match shape[..] == like.shape()[..] {
                    true => like.clone(),
                    false => Tensor::empty(&shape, like.dtype(), like.device())?,
                };
                if let Some(tensor) = reader.tensor(&state_name(number, name), &expected) {
                    let tensor = tensor.detach().to_dtype(like.dtype())?.to(like.device())?;
                    tensors.push(tensor.copy()?);
                }
            }
            loaded.push(Some(State::of(step, numbers, tensors)));
        }
        reader.finish()?;
        rules.iter().try_for_each(Rule::check)?;
        let mut loaded = loaded.into_iter();
        for (group, rule) in self.groups.iter_mut().zip(rules) {
            group.rule = rule;
            for (slot, state) in group.slots.iter_mut().zip(&mut loaded) {
                slot.state = state;
            }
        }
        Ok(())
    }
}

const COUNT: &str = "params";
const STEP: &str = "step";

fn option_name(group: usize, name: &str) -> String {
    format!("param_groups.{group}.{name}")
}

fn state_name(parameter: usize, name: &str) -> String {
    format!("state.{parameter}.{name}")
}

/// Refuses an option outside of `range`, which reads as `at least 0`.
pub(crate) fn check_option(
    optimizer: &'static str,
    name: &str,
    value: f64,
    fits: bool,
    range: &str,
) -> Result<()> {
    if fits {
        return Ok(());
    }
    Err(Error::argument(
        optimizer,
        format!("{name} must be {range}, got {value}"),
    ))
}

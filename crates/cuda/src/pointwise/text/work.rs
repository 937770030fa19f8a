//! What pointwise kernels do with their elements beyond storing them: many sets of operands in one launch, and sums.

use std::fmt::Write;

use fireclay_core::program::Program;
use fireclay_core::trace::Kind;

use super::{Register, THREADS, Writer, kind_of, type_of};
use crate::reduce::{BLOCK, LANES, ROWS_PER_BLOCK};

/// What a kernel does with the elements that it computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::pointwise) enum Work {
    /// Stores them.
    Store,
    /// Stores those of many sets of operands, all contiguous, the outputs of each lying where its first inputs do.
    StoreSets,
    /// Adds up those of the only output, a number for each block of a row: see [`crate::reduce`].
    Sum,
}

/// Bytes of a table of sets before its rows: how many rows are used.
pub(in crate::pointwise) const TABLE_HEAD: usize = 8;

/// Bytes of a set in a table: the number of its first block, its elements, its operands' addresses.
pub(in crate::pointwise) fn row_size(operands: usize) -> usize {
    16 + 8 * operands
}

/// Bytes that the parameters of a kernel may have.
pub(in crate::pointwise) const ROOM: usize = 4096;

/// How many sets one launch takes: as many as there is room for.
pub(in crate::pointwise) fn most_sets(program: &Program) -> usize {
    (ROOM - TABLE_HEAD - 8 * program.constants.len()) / row_size(program.inputs.len())
}

/// Bytes of the table that a launch over sets takes.
pub(in crate::pointwise) fn table_size(program: &Program) -> usize {
    TABLE_HEAD + most_sets(program) * row_size(program.inputs.len())
}

impl Writer<'_> {
    /// The type and the kind of the numbers that are added up.
    pub(super) fn number_summed(&self) -> (&'static str, Kind) {
        let class = self.program.classes[self.program.outputs[0].0];
        (type_of(class), kind_of(class))
    }

    /// Finds the set that the block works on: the last one whose first block is not beyond it. Loads its addresses; the thread's
    /// first element, and how many the set has.
    pub(super) fn find_set(&mut self) -> (Register, Register) {
        let (kind, index) = self.index();
        let operands = self.program.inputs.len();
        let row_size = row_size(operands);
        let [table, row] = [(); 2].map(|()| self.register(Kind::I64));
        let [block, low, high, middle, first] = [(); 5].map(|()| self.register(Kind::I32));
        let [done, before] = [(); 2].map(|()| self.register(Kind::Mask));
        line!(self, "  mov.u32 {block}, %ctaid.x;");
        line!(self, "  mov.b64 {table}, table;");
        line!(self, "  ld.param.u32 {high}, [table];");
        line!(self, "  mov.u32 {low}, 0;");
        line!(self, "HALVE:");
        line!(self, "  add.u32 {middle}, {low}, 1;");
        line!(self, "  setp.ge.u32 {done}, {middle}, {high};");
        line!(self, "  @{done} bra FOUND;");
        line!(self, "  add.u32 {middle}, {low}, {high};");
        line!(self, "  shr.u32 {middle}, {middle}, 1;");
        line!(self, "  mad.wide.u32 {row}, {middle}, {row_size}, {table};");
        line!(self, "  ld.param.u32 {first}, [{row}+{TABLE_HEAD}];");
        line!(self, "  setp.le.u32 {before}, {first}, {block};");
        line!(self, "  selp.u32 {low}, {middle}, {low}, {before};");
        line!(self, "  selp.u32 {high}, {high}, {middle}, {before};");
        line!(self, "  bra HALVE;");
        line!(self, "FOUND:");
        line!(self, "  mad.wide.u32 {row}, {low}, {row_size}, {table};");
        line!(self, "  ld.param.u32 {first}, [{row}+{TABLE_HEAD}];");
        line!(self, "  sub.u32 {block}, {block}, {first};");
        let count = self.register(kind);
        line!(
            self,
            "  ld.param.{index} {count}, [{row}+{}];",
            TABLE_HEAD + 8
        );
        for operand in 0..operands {
            let [generic, global] = [(); 2].map(|()| self.register(Kind::I64));
            let place = TABLE_HEAD + 16 + 8 * operand;
            line!(self, "  ld.param.u64 {generic}, [{row}+{place}];");
            line!(self, "  cvta.to.global.u64 {global}, {generic};");
            self.addresses.push(global);
        }
        for output in 0..self.program.outputs.len() {
            self.addresses.push(self.addresses[output]);
        }
        self.strides = vec![Vec::new(); self.plan.forms.len()];
        (self.position(block), count)
    }

    /// Adds up the elements of a block of a row in the host's order.
    pub(super) fn sum(&mut self) {
        let count = self.load_parameters();
        let (kind, index) = self.index();
        let (ty, number) = self.number_summed();
        let size = self.program.outputs[0].1.size();
        let [tid, lane, part, half, slot, other] = [(); 6].map(|()| self.register(Kind::I32));
        let [block, start, end, position] = [(); 4].map(|()| self.register(kind));
        let [value, next, divisor] = [(); 3].map(|()| self.register(number));
        let [stop, out] = [Kind::Mask, Kind::I64].map(|kind| self.register(kind));
        line!(self, "  .shared .align 8 .b8 lanes[{}];", THREADS * size);
        line!(self, "  mov.u32 {tid}, %tid.x;");
        line!(self, "  and.b32 {lane}, {tid}, {};", LANES - 1);
        line!(self, "  shr.u32 {part}, {tid}, {};", LANES.ilog2());
        line!(self, "  mov.u32 {half}, %ctaid.x;");
        line!(
            self,
            "  mad.lo.u32 {part}, {half}, {ROWS_PER_BLOCK}, {part};"
        );
        line!(self, "  cvt.{index}.u32 {block}, {part};");
        line!(self, "  mul.lo.{index} {start}, {block}, {BLOCK};");
        match number {
            Kind::F32 => line!(self, "  mov.f32 {value}, 0f00000000;"),
            _ => line!(self, "  mov.f64 {value}, 0d0000000000000000;"),
        }
        line!(self, "  setp.ge.{index} {stop}, {start}, {count};");
        line!(self, "  @{stop} bra ADDED;");
        line!(self, "  sub.{index} {end}, {count}, {start};");
        line!(self, "  min.{index} {end}, {end}, {BLOCK};");
        line!(self, "  add.{index} {end}, {end}, {start};");
        line!(self, "  cvt.{index}.u32 {position}, {lane};");
        line!(self, "  add.{index} {position}, {position}, {start};");
        line!(self, "NEXT:");
        line!(self, "  setp.ge.{index} {stop}, {position}, {end};");
        line!(self, "  @{stop} bra ADDED;");
        let places = self.places(position);
        let element = self.compute(&places, 1)[0][0];
        line!(self, "  add.rn.{ty} {value}, {value}, {element};");
        line!(self, "  add.{index} {position}, {position}, {LANES};");
        line!(self, "  bra NEXT;");
        line!(self, "ADDED:");
        line!(self, "  mov.u32 {slot}, lanes;");
        line!(self, "  mad.lo.u32 {slot}, {tid}, {size}, {slot};");
        line!(self, "  st.shared.{ty} [{slot}], {value};");
        line!(self, "  mov.u32 {half}, {};", LANES / 2);
        line!(self, "TREE:");
        line!(self, "  bar.sync 0;");
        line!(self, "  setp.ge.u32 {stop}, {lane}, {half};");
        line!(self, "  @{stop} bra WAIT;");
        line!(self, "  mad.lo.u32 {other}, {half}, {size}, {slot};");
        line!(self, "  ld.shared.{ty} {next}, [{other}];");
        line!(self, "  add.rn.{ty} {value}, {value}, {next};");
        line!(self, "  st.shared.{ty} [{slot}], {value};");
        line!(self, "WAIT:");
        line!(self, "  shr.u32 {half}, {half}, 1;");
        line!(self, "  setp.ne.u32 {stop}, {half}, 0;");
        line!(self, "  @{stop} bra TREE;");
        line!(self, "  setp.ne.u32 {stop}, {lane}, 0;");
        line!(self, "  @{stop} bra DONE;");
        line!(self, "  setp.ge.{index} {stop}, {start}, {count};");
        line!(self, "  @{stop} bra DONE;");
        line!(self, "  ld.param.u32 {other}, [divide];");
        line!(self, "  setp.eq.u32 {stop}, {other}, 0;");
        line!(self, "  @{stop} bra WHOLE;");
        line!(self, "  ld.param.{ty} {divisor}, [divisor];");
        line!(self, "  div.rn.{ty} {value}, {value}, {divisor};");
        line!(self, "WHOLE:");
        let results = self.addresses[self.program.inputs.len()];
        line!(self, "  mul.wide.u32 {out}, {part}, {size};");
        line!(self, "  add.u64 {out}, {out}, {results};");
        line!(self, "  st.global.{ty} [{out}], {value};");
        line!(self, "DONE:");
        line!(self, "  ret;");
    }
}

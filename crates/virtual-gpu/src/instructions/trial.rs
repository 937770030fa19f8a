//! For tests: runs some instructions on every thread of a block, with words in and words out.

use crate::fault::Fault;
use crate::rig::{Bytes, Rig};

/// Instructions to run. They find inputs in the registers `%i0`, `%i1`.. and leave outputs in `%o0`, `%o1`..; `%g` is
/// the address of [`Trial::scratch`], and `s` is shared memory of 16 KiB. `%x`, `%l`, `%h`, `%f`, `%d`, `%p` are there
/// for use, as b32, b64, b16, f32, f64 and predicates.
pub(crate) struct Trial {
    /// The instructions.
    pub(crate) body: String,
    /// Threads of a block; at most 64 if there are inputs or outputs.
    pub(crate) threads: u32,
    /// Blocks.
    pub(crate) blocks: u32,
    /// Threads of the host.
    pub(crate) workers: usize,
    /// A word for each thread.
    pub(crate) inputs: Vec<Vec<u32>>,
    /// How many outputs there are.
    pub(crate) outputs: usize,
    /// Global memory.
    pub(crate) scratch: Vec<u8>,
    /// The number in `.target sm_90`.
    pub(crate) target: u32,
    /// Whether the checks of races and uninitialised bytes are on.
    pub(crate) checked: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// A word for each thread.
    pub(crate) outputs: Vec<Vec<u32>>,
    /// Global memory.
    pub(crate) scratch: Vec<u8>,
    /// What was printed.
    pub(crate) printed: String,
}

impl Trial {
    /// One warp without inputs, outputs and memory.
    pub(crate) fn new(body: impl Into<String>) -> Trial {
        Trial {
            body: body.into(),
            threads: 32,
            blocks: 1,
            workers: 1,
            inputs: Vec::new(),
            outputs: 0,
            scratch: Vec::new(),
            target: 90,
            checked: false,
        }
    }

    /// Adds an input.
    pub(crate) fn input(mut self, words: impl Into<Vec<u32>>) -> Trial {
        self.inputs.push(words.into());
        self
    }

    /// Runs it; a fault is an error.
    pub(crate) fn run(self) -> Result<Outcome, Box<Fault>> {
        let mut rig = Rig::new(&self.text());
        rig.options.workers = self.workers;
        rig.options.check_shared_races = self.checked;
        rig.options.check_uninitialized = self.checked;
        // The addresses of buffers have zeros in their low half, so that offsets need no arithmetic.
        let offsets: Vec<u8> = (0..self.threads.min(64))
            .map(|thread| (thread * 4) as u8)
            .collect();
        let offsets = rig.filled(&offsets);
        let scratch = rig.filled(&self.scratch);
        let mut params = vec![offsets, scratch];
        params.extend(self.inputs.iter().map(|words| rig.filled(&words.bytes())));
        let outputs: Vec<u64> = (0..self.outputs)
            .map(|_| rig.buffer(4 * self.threads as usize))
            .collect();
        params.extend(&outputs);
        let params: Vec<Vec<u8>> = params.iter().map(Bytes::bytes).collect();
        let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
        rig.launch(
            "trial",
            [self.blocks, 1, 1],
            [self.threads, 1, 1],
            0,
            &params,
        )?;
        let words = |address| {
            let bytes = rig.read(address);
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect()
        };
        Ok(Outcome {
            outputs: outputs.into_iter().map(words).collect(),
            scratch: rig.read(scratch),
            printed: rig
                .printed
                .lock()
                .expect("no test panics while printing")
                .clone(),
        })
    }

    /// The result of a run without fault.
    pub(crate) fn done(self) -> Outcome {
        let text = self.text();
        self.run().unwrap_or_else(|fault| panic!("{fault}\n{text}"))
    }

    /// The message of the fault that must come.
    pub(crate) fn fault(self) -> Box<Fault> {
        let text = self.text();
        self.run().map_or_else(
            |fault| fault,
            |outcome| panic!("no fault: {outcome:?}\n{text}"),
        )
    }

    fn text(&self) -> String {
        let buffers = 2 + self.inputs.len() + self.outputs;
        let params: Vec<String> = (0..buffers)
            .map(|index| format!(".param .u64 p{index}"))
            .collect();
        let mut text = format!(
            ".version 8.8\n.target sm_{}\n.address_size 64\n{DECLARATIONS}\n.visible .entry trial({})\n{{\n\
             .reg .b32 %i<32>; .reg .b32 %o<32>; .reg .b32 %x<64>; .reg .b64 %l<64>; .reg .b16 %h<64>;\n\
             .reg .f32 %f<64>; .reg .f64 %d<64>; .reg .pred %p<16>; .reg .b64 %g; .reg .b64 %address;\n\
             .reg .b32 %low; .reg .b32 %high; .reg .b32 %place;\n\
             .shared .align 128 .b8 s[16384];\n\
             mov.u32 %place, %tid.x;\nld.param.u64 %g, [p1];\n",
            self.target,
            params.join(", ")
        );
        let address = |buffer: usize| {
            format!(
                "ld.param.u64 %address, [p{buffer}];\nmov.b64 {{%low, %high}}, %address;\n\
                 mov.b64 %address, {{%place, %high}};\n"
            )
        };
        if buffers > 2 {
            text += &format!("{}ld.global.u8 %place, [%address];\n", address(0));
        }
        for index in 0..self.inputs.len() {
            text += &format!(
                "{}ld.global.b32 %i{index}, [%address];\n",
                address(2 + index)
            );
        }
        text += &self.body;
        text += "\n";
        for index in 0..self.outputs {
            text += &format!(
                "{}st.global.b32 [%address], %o{index};\n",
                address(2 + self.inputs.len() + index)
            );
        }
        text + "ret;\n}\n"
    }
}

/// Functions that a kernel may call.
const DECLARATIONS: &str = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
    .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
    .extern .func (.param .b64 r) malloc(.param .b64 a);\n\
    .extern .func free(.param .b64 a);\n\
    .global .align 1 .b8 text[64] = {37, 100, 32, 37, 115, 32, 37, 46, 50, 102, 10, 0, 119, 111, 114, 100, 0};";

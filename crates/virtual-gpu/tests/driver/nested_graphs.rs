//! Graphs within graphs, and how deep.

use crate::api::{self, ok};
use crate::gpu::code;
use crate::graphs::{graph, instantiate, launch};
use crate::{eager, null};

#[test]
fn graphs_are_nested_only_so_deep() {
    let gpu = eager();
    let (mut inner, mut node) = (graph(), null());
    ok(api::cuGraphAddEmptyNode(&mut node, inner, null(), 0));
    let mut levels = 0;
    let refused = loop {
        let outer = graph();
        let code = api::cuGraphAddChildGraphNode(&mut node, outer, null(), 0, inner);
        if code != 0 {
            break code;
        }
        ok(api::cuGraphDestroy(inner));
        (inner, levels) = (outer, levels + 1);
    };
    assert_eq!((refused, levels), (code::NOT_SUPPORTED, 64));
    crate::logged(&gpu, &["nested more than 64 deep"]);
    launch(instantiate(inner), null());
    ok(api::cuCtxSynchronize());
    // Neither from inside.
    let mut inside = inner;
    for _ in 0..64 {
        let (mut nodes, mut count) = ([null(); 1], 1);
        ok(api::cuGraphGetNodes(inside, nodes.as_mut_ptr(), &mut count));
        ok(api::cuGraphChildGraphNodeGetGraph(nodes[0], &mut inside));
    }
    assert_eq!(
        api::cuGraphAddChildGraphNode(&mut node, inside, null(), 0, graph()),
        code::NOT_SUPPORTED
    );
}

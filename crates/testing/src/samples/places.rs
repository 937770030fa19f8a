//! Samples of rearrangements, paddings, masks and index expressions.

use fireclay_tensor::{
    DType, Device, Ellipsis, Every, Indexing, NewDim, Pad, ScatterReduce, Tensor,
};

use super::List;
use crate::draw::Draw;

pub(super) fn add(list: &mut List) {
    // A draw of its own: the numbers of other samples stay as they are.
    let before = std::mem::replace(&mut list.draw, Draw::new(606));
    views(list);
    rearranged(list);
    padded(list);
    masked(list);
    indexed(list);
    reduced(list);
    searched(list);
    list.draw = before;
}

fn views(list: &mut List) {
    let x = list.plain(&[3, 4, 2]);
    let one = || vec![x.clone()];
    list.add("diagonal", one(), |x| x[0].diagonal(1, 1, 0));
    list.add("diagonal", one(), |x| x[0].diagonal(-1, 0, 1));
    list.add("unfold", one(), |x| x[0].unfold(1, 2, 1));
    list.add("unfold", one(), |x| x[0].unfold(0, 1, 2));
    list.add("unflatten", one(), |x| x[0].unflatten(1, &[2, -1]));
    list.add("movedim", one(), |x| x[0].movedim(&[0, 2], &[1, 0]));
    let extra = list.plain(&[1, 3, 1]);
    list.add("squeeze", vec![extra], |x| x[0].squeeze_dims(&[0, 1, -1]));
    list.add("split", one(), |x| {
        let parts = x[0].split_with_sizes(&[1, 3], 1)?;
        Tensor::cat(&[&parts[1], &parts[0]], 1)
    });
}

fn rearranged(list: &mut List) {
    let x = list.plain(&[3, 4, 2]);
    let one = || vec![x.clone()];
    list.add("flip", one(), |x| x[0].flip(&[1]));
    list.add("flip", one(), |x| x[0].flip(&[-1, 0]));
    list.add("roll", one(), |x| x[0].roll(&[1, -3], &[0, 1]));
    list.add("rot90", one(), |x| x[0].rot90(1, [0, 1]));
    list.add("repeat", one(), |x| x[0].repeat(&[2, 1, 3, 1]));
    list.add("tile", one(), |x| x[0].tile(&[2, 1]));
    list.add("repeat_interleave", one(), |x| {
        x[0].repeat_interleave(2, Some(1))
    });
    let counts = list.draw.ints(&[4], 0, 3);
    list.add("repeat_interleave", vec![x.clone(), counts], |x| {
        x[0].repeat_interleave_by(&x[1], Some(1))
    });
    list.add("tril", one(), |x| x[0].tril(-1));
    list.add("triu", one(), |x| x[0].triu(1));
    let (a, b) = (list.plain(&[3]), list.plain(&[2]));
    list.add("diag", vec![a.clone()], |x| x[0].diag(1));
    list.add("diag_embed", one(), |x| x[0].diag_embed(-1, 0, 2));
    list.add("meshgrid", vec![a.clone(), b.clone()], |x| {
        let grids = Tensor::meshgrid(&[&x[0], &x[1]], Indexing::Xy)?;
        grids[0].mul(&grids[1])
    });
    list.add("cartesian_prod", vec![a.clone(), b], |x| {
        Tensor::cartesian_prod(&[&x[0], &x[1]])
    });
    list.add("combinations", vec![a.clone()], |x| {
        x[0].combinations(2, true)
    });
    let extra = list.plain(&[2, 1]);
    list.add("block_diag", vec![extra, a], |x| {
        Tensor::block_diag(&[&x[0], &x[1]])
    });
}

fn padded(list: &mut List) {
    let x = list.plain(&[2, 3, 4]);
    let one = || vec![x.clone()];
    list.add("pad", one(), |x| {
        x[0].pad(&[1, 2, -1, 1], Pad::Constant(1.5.into()))
    });
    list.add("pad", one(), |x| x[0].pad(&[2, 1], Pad::Reflect));
    list.add("pad", one(), |x| x[0].pad(&[1, -1, 2, 0], Pad::Replicate));
    list.add("pad", one(), |x| x[0].pad(&[3, 1, 0, 2], Pad::Circular));
}

fn masked(list: &mut List) {
    let x = list.plain(&[3, 4]);
    let bits: Vec<bool> = (0..12).map(|_| list.draw.flip()).collect();
    let mask = Tensor::from_slice(&bits, &[3, 4], Device::Cpu).expect("twelve bools");
    let row = Tensor::from_slice(&bits[..4], &[4], Device::Cpu).expect("four bools");
    let value = list.plain(&[]);
    list.add("masked_fill", vec![x.clone(), row.clone(), value], |x| {
        x[0].masked_fill(&x[1], &x[2])
    });
    list.add("masked_select", vec![x.clone(), mask.clone()], |x| {
        x[0].masked_select(&x[1])
    });
    let source = list.plain(&[13]);
    list.add(
        "masked_scatter",
        vec![x.clone(), mask.clone(), source],
        |x| x[0].masked_scatter(&x[1], &x[2]),
    );
    list.add("index", vec![x.clone(), mask.clone()], |x| x[0].i(&x[1]));
    list.add("index", vec![x.clone(), row], |x| x[0].i((1.., &x[1])));
    list.add_stepped("nonzero", vec![mask.clone()], |x| x[0].nonzero());
    let extra = list.plain(&[]);
    list.add("index_put", vec![x, mask, extra], |x| {
        x[0].index_put(&[&x[1]], &x[2], true)
    });
}

fn indexed(list: &mut List) {
    let x = list.plain(&[3, 4, 2]);
    let (rows, others) = (list.draw.ints(&[3], -3, 2), list.draw.ints(&[3], -2, 1));
    let places = list.draw.ints(&[2, 3], -24, 23);
    list.add("index", vec![x.clone()], |x| {
        x[0].i((.., NewDim, (1..).every(2), -1))
    });
    list.add(
        "index",
        vec![x.clone(), rows.clone(), others.clone()],
        |x| x[0].i((&x[1], .., &x[2])),
    );
    list.add("index", vec![x.clone(), rows.clone()], |x| {
        x[0].i((
            Ellipsis,
            &x[1].add(1)?.div(2)?.floor()?.to_dtype(DType::I64)?,
        ))
    });
    let part = list.plain(&[3, 2]);
    list.add("index_put", vec![x.clone(), part.clone()], |x| {
        let changed = x[0].copy()?;
        changed.set((.., 1, ..), &x[1])?;
        changed.set((0, (..).every(3)), 0.5)
    });
    list.add(
        "index_put",
        vec![x.clone(), rows.clone(), part.clone()],
        |x| {
            let changed = x[0].copy()?;
            changed.set((.., [0, 2, 3], 1), &x[2].select(1, 0)?)
        },
    );
    list.add("take", vec![x.clone(), places.clone()], |x| {
        x[0].take(&x[1])
    });
    list.add("put", vec![x.clone(), places, part.clone()], |x| {
        x[0].put(&x[1], &x[2].t()?, true)
    });
    let along = list.draw.ints(&[3, 1, 2], -4, 3);
    list.add("take_along_dim", vec![x.clone(), along], |x| {
        x[0].take_along_dim(&x[1], Some(1))
    });
    let two = list.draw.ints(&[2], 0, 3);
    let source = list.plain(&[3, 2, 2]);
    list.add("index_copy", vec![x.clone(), two.clone(), source], |x| {
        x[0].index_copy(1, &x[1], &x[2])
    });
    let extra = list.plain(&[]);
    list.add("index_fill", vec![x, two, extra], |x| {
        x[0].index_fill(1, &x[1], &x[2])
    });
}

fn reduced(list: &mut List) {
    let x = list.plain(&[3, 2]);
    let index = list.draw.ints(&[5, 2], 0, 2);
    let source = list.plain(&[5, 2]);
    for reduce in [
        ScatterReduce::Sum,
        ScatterReduce::Mean,
        ScatterReduce::Prod,
        ScatterReduce::Amax,
        ScatterReduce::Amin,
    ] {
        for include_self in [true, false] {
            list.add(
                "scatter_reduce",
                vec![x.clone(), index.clone(), source.clone()],
                move |x| x[0].scatter_reduce(0, &x[1], &x[2], reduce, include_self),
            );
        }
    }
    let once = Tensor::from_slice(&[0i64, 2, 1, 0], &[2, 2], Device::Cpu).expect("four indices");
    let extra = list.plain(&[2, 2]);
    list.add("scatter", vec![x, once, extra], |x| {
        x[0].scatter(0, &x[1], &x[2])
    });
}

fn searched(list: &mut List) {
    let (x, edges) = (list.plain(&[2, 5]), list.plain(&[2, 4]));
    list.add_stepped("searchsorted", vec![edges, x.clone()], |x| {
        x[0].sort(-1, false)?.0.searchsorted(&x[1], true)
    });
    let extra = list.plain(&[7]);
    list.add_stepped("bucketize", vec![x, extra], |x| {
        x[0].bucketize(&x[1].sort(0, false)?.0, false)
    });
    let numbers = list.draw.ints(&[9], 0, 4);
    list.add_stepped("bincount", vec![numbers.clone()], |x| {
        x[0].bincount(None, 6)
    });
    list.add_stepped("one_hot", vec![numbers.clone()], |x| x[0].one_hot(Some(5)));
    list.add_stepped("unique", vec![numbers], |x| x[0].unique());
}

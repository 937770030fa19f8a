//! Samples of attention: grouped heads, masks of both kinds, causal, sizes of 1, over a tile and empty.

use fireclay_tensor::{Attention, Tensor, fork_rng, manual_seed};

use super::List;

const OP: &str = "scaled_dot_product_attention";

pub(super) fn add(list: &mut List) {
    plain(list);
    tiled(list);
    masked(list);
    let inputs = operands(list, &[2, 3, 4], &[2, 5, 4], 3);
    list.add(OP, inputs, |x| {
        let options = Attention {
            dropout_p: 0.4,
            ..Attention::default()
        };
        fork_rng(|| {
            manual_seed(3);
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        })
    });
}

/// Query, key and value; the last size of the value is `value_width`.
fn operands(list: &mut List, query: &[usize], key: &[usize], value_width: usize) -> Vec<Tensor> {
    let mut value = key.to_vec();
    value[key.len() - 1] = value_width;
    vec![list.plain(query), list.plain(key), list.plain(&value)]
}

fn plain(list: &mut List) {
    let causal = Attention {
        is_causal: true,
        ..Attention::default()
    };
    let grouped = Attention {
        enable_gqa: true,
        ..Attention::default()
    };
    let scaled = Attention {
        scale: Some(0.3),
        ..grouped
    };
    let both = Attention {
        is_causal: true,
        ..grouped
    };
    type Row<'a> = (&'a [usize], &'a [usize], usize, Attention<'static>);
    let rows: [Row<'_>; 12] = [
        (&[3, 4], &[5, 4], 2, Attention::default()),
        (&[2, 3, 5], &[2, 5, 5], 3, causal),
        (&[1, 2, 5, 4], &[1, 2, 3, 4], 4, causal),
        (&[1, 4, 3, 2], &[1, 2, 4, 2], 3, both),
        (&[2, 2, 2, 3], &[1, 1, 4, 3], 1, scaled),
        (&[2, 1, 1, 3], &[2, 3, 3], 2, Attention::default()),
        (&[1, 70, 3], &[1, 67, 3], 2, causal),
        (&[1, 1, 2], &[1, 130, 2], 3, Attention::default()),
        (&[1, 2, 1], &[1, 3, 1], 1, Attention::default()),
        (&[2, 0, 3], &[2, 3, 3], 2, Attention::default()),
        (&[2, 3, 2], &[2, 0, 2], 2, Attention::default()),
        (&[1, 2, 0], &[1, 3, 0], 2, causal),
    ];
    for (query, key, value_width, options) in rows {
        let inputs = operands(list, query, key, value_width);
        list.add(OP, inputs, move |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        });
    }
}

/// Several tiles of queries and of keys, more columns than a block has.
fn tiled(list: &mut List) {
    let inputs = vec![
        list.many(&[1, 2, 50, 5]),
        list.many(&[1, 1, 67, 5]),
        list.many(&[1, 1, 67, 66]),
    ];
    list.add_large(OP, inputs, |x| {
        let options = Attention {
            is_causal: true,
            enable_gqa: true,
            ..Attention::default()
        };
        x[0].scaled_dot_product_attention(&x[1], &x[2], options)
    });
}

fn masked(list: &mut List) {
    // Masks that keep keys: of each query and key (the second query sees nothing), of keys only, of heads.
    for shape in [&[3, 4][..], &[2, 1, 1, 4], &[2, 3, 1]] {
        let mut inputs = operands(list, &[2, 2, 3, 2], &[2, 2, 4, 2], 3);
        let mask = list.draw.ints(shape, 0, 1).ne(0);
        let mut mask = mask.expect("a comparison");
        if shape.len() == 2 {
            let rows = Tensor::from_slice(&[1.0, 0.0, 1.0], &[3, 1], "cpu");
            let rows = rows.and_then(|rows| rows.ne(0.0)).expect("a comparison");
            mask = mask.logical_and(&rows).expect("masks broadcast");
        }
        inputs.push(mask);
        list.add(OP, inputs, |x| {
            let options = Attention {
                attn_mask: Some(&x[3]),
                ..Attention::default()
            };
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        });
    }
    // Masks that are added: with a gradient, and without.
    for shape in [&[3, 4][..], &[2, 1, 3, 1]] {
        let mut inputs = operands(list, &[2, 2, 3, 2], &[2, 2, 4, 2], 3);
        inputs.push(list.plain(shape));
        list.add(OP, inputs.clone(), |x| {
            let options = Attention {
                attn_mask: Some(&x[3]),
                ..Attention::default()
            };
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        });
        let mask = inputs.pop().expect("a mask");
        list.add(OP, inputs, move |x| {
            let mask = mask.to(x[0].device())?.to_dtype(x[0].dtype())?;
            let options = Attention {
                attn_mask: Some(&mask),
                ..Attention::default()
            };
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        });
    }
}

//! Samples of views, joining and indexing.

use fireclay_tensor::Tensor;

use super::List;

pub(super) fn add(list: &mut List) {
    views(list);
    joined(list);
    indexed(list);
}

fn views(list: &mut List) {
    let x = list.plain(&[2, 3, 4]);
    let one = || vec![x.clone()];
    list.add("view", one(), |x| x[0].reshape(&[6, -1]));
    list.add("view", one(), |x| x[0].flatten(1, 2));
    list.add("transpose", one(), |x| x[0].transpose(0, -1));
    list.add("permute", one(), |x| x[0].permute(&[2, 0, 1]));
    list.add("slice", one(), |x| x[0].narrow(1, 1, 2));
    list.add("slice", one(), |x| x[0].slice(2, 1, 4, 2));
    list.add("select", one(), |x| x[0].select(1, -1));
    list.add("unsqueeze", one(), |x| x[0].unsqueeze(1));
    list.add("as_strided", one(), |x| {
        x[0].contiguous()?
            .as_strided(&[3, 2], &[2, 3], x[0].contiguous()?.layout().offset())
    });
    let thin = list.plain(&[2, 1, 3]);
    list.add("squeeze", vec![thin.clone()], |x| x[0].squeeze(1));
    list.add("expand", vec![thin], |x| x[0].expand(&[2, 2, 4, 3]));
}

fn joined(list: &mut List) {
    let (x, y) = (list.plain(&[2, 3]), list.plain(&[1, 3]));
    list.add("cat", vec![x.clone(), y], |x| {
        Tensor::cat(&[&x[0], &x[1]], 0)
    });
    let z = list.plain(&[2, 3]);
    list.add("stack", vec![x, z], |x| Tensor::stack(&[&x[0], &x[1]], -1));
}

fn indexed(list: &mut List) {
    let x = list.plain(&[4, 3]);
    let rows = list.draw.ints(&[5], 0, 3);
    let places = list.draw.ints(&[2, 3], 0, 3);
    let source = list.plain(&[2, 3]);
    let more = list.plain(&[5, 3]);
    list.add("index_select", vec![x.clone(), rows.clone()], |x| {
        x[0].index_select(0, &x[1])
    });
    list.add("embedding", vec![x.clone(), places.clone()], |x| {
        x[0].embedding(&x[1])
    });
    list.add("gather", vec![x.clone(), places.clone()], |x| {
        x[0].gather(0, &x[1])
    });
    list.add("scatter_add", vec![x.clone(), places, source], |x| {
        x[0].scatter_add(0, &x[1], &x[2])
    });
    list.add("index_add", vec![x, rows, more], |x| {
        x[0].index_add(0, &x[1], &x[2])
    });
}

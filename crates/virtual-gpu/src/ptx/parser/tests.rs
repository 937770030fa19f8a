//! Whole texts, constructs and mutations through the parser.
use super::*;
#[test]
#[ignore = "needs a folder of PTX, named by VIRTUAL_GPU_PTX"]
fn every_text_of_a_folder_parses() {
    let folder = std::env::var("VIRTUAL_GPU_PTX").expect("VIRTUAL_GPU_PTX names a folder");
    let mut failed = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let start = std::time::Instant::now();
        let parsed = parse(&text);
        let seconds = start.elapsed().as_secs_f64();
        match parsed {
            Ok(module) => println!(
                "{}: {} functions, {:.0} MB/s",
                path.display(),
                module.functions.len(),
                text.len() as f64 / seconds / 1e6
            ),
            Err(error) => {
                failed += 1;
                println!("{}: {error}", path.display());
            }
        }
    }
    assert_eq!(failed, 0, "texts that do not parse");
}

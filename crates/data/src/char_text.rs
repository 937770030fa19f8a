//! `CharText`: a text as numbers of its characters, and passages of it as a dataset, to train a language model on.

use std::path::Path;
use std::sync::Arc;

use fireclay_core::{Device, Error, Result};
use fireclay_tensor::Tensor;

use crate::dataset::{Dataset, check_index};
use crate::sample_rng::SampleRng;
use crate::text_file::{damaged, read, read_file};

const EMBEDDED: &[u8] = include_bytes!("../../../data/shakespeare/shakespeare.txt.gz");

/// Into so many sections of one length a text is cut; every [`HELD_OUT`]th of them is not trained on.
const SECTIONS: usize = 100;
/// One section of this many is held out.
const HELD_OUT: usize = 10;

/// What a good file is.
const EXPECTED: &str = "expected text in UTF-8, plain or gzip";

/// A text, each character as its number in the vocabulary: the text's distinct characters in the order of Unicode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharText {
    vocabulary: Vec<char>,
    tokens: Arc<Vec<u32>>,
}

impl CharText {
    /// Shakespeare's works of this repository: in the program itself, no file needed.
    ///
    /// # Errors
    /// None unless the program was built from damaged data.
    pub fn shakespeare() -> Result<CharText> {
        let path = Path::new("embedded shakespeare.txt.gz");
        CharText::of(&read(EMBEDDED, path, EXPECTED)?, path)
    }

    /// The text of a file, plain or gzip (told apart by the content).
    ///
    /// # Errors
    /// A file that can't be read, is no text, or is empty.
    pub fn from_file(path: impl AsRef<Path>) -> Result<CharText> {
        let path = path.as_ref();
        CharText::of(&read_file(path, EXPECTED)?, path)
    }

    fn of(text: &str, path: &Path) -> Result<CharText> {
        if text.is_empty() {
            return Err(damaged(path, "it is empty".into(), EXPECTED));
        }
        let mut vocabulary: Vec<char> = text.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let tokens = text.chars().map(|character| {
            let found = vocabulary.binary_search(&character);
            found.expect("the vocabulary has all characters of the text") as u32
        });
        let tokens = Arc::new(tokens.collect());
        Ok(CharText { vocabulary, tokens })
    }

    /// The distinct characters; token `i` stands for the `i`th.
    pub fn vocabulary(&self) -> &[char] {
        &self.vocabulary
    }

    /// The number of each character.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The characters of tokens.
    ///
    /// # Errors
    /// A token that the vocabulary doesn't have.
    pub fn decode(&self, tokens: &[i64]) -> Result<String> {
        let characters = tokens.iter().map(|&token| {
            let index = usize::try_from(token).ok();
            index
                .and_then(|index| self.vocabulary.get(index))
                .ok_or_else(|| {
                    let count = self.vocabulary.len();
                    let what = format!("token {token} is not one of the {count} of the vocabulary");
                    Error::argument("CharText::decode", what)
                })
        });
        characters.collect()
    }

    /// The tokens of characters.
    ///
    /// # Errors
    /// A character that the text doesn't have.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>> {
        let tokens = text.chars().map(|character| {
            let found = self.vocabulary.binary_search(&character);
            found.map(|index| index as i64).map_err(|_| {
                let what = format!("{character:?} is not among the characters of the text");
                Error::argument("CharText::encode", what)
            })
        });
        tokens.collect()
    }

    /// Passages of `length` characters to train on, and others to test on.
    ///
    /// The text is cut into 100 sections of one length; every tenth, from the tenth on, is for the test. So both parts have some of
    /// all that the text has, and no passage reaches from one into the other.
    ///
    /// # Errors
    /// A text too short to have a passage in each section, or passages of no characters.
    pub fn split(&self, length: usize) -> Result<(Passages, Passages)> {
        let section = self.tokens.len() / SECTIONS;
        if length == 0 || section <= length {
            let count = self.tokens.len();
            let what = format!(
                "a text of {count} characters has no {SECTIONS} sections of more than {length} characters"
            );
            return Err(Error::argument("CharText::split", what).with_hint(format!(
                "take passages of 1 to {} characters, or a longer text",
                section.saturating_sub(1)
            )));
        }
        let part = |held_out: bool| {
            let own =
                (0..SECTIONS).filter(move |place| (place % HELD_OUT == HELD_OUT - 1) == held_out);
            Passages {
                tokens: Arc::clone(&self.tokens),
                sections: own.map(|place| place * section).collect(),
                section,
                length,
                by_chance: !held_out,
            }
        };
        Ok((part(false), part(true)))
    }
}

/// Passages of a text: a sample is the tokens of a passage and, for each, the token that follows it, both i64 of shape
/// `[length]`. One time through the dataset is one time through its part of the text; those to train on begin each time at
/// other characters, by chance.
#[derive(Clone, Debug)]
pub struct Passages {
    tokens: Arc<Vec<u32>>,
    /// Where the sections begin.
    sections: Vec<usize>,
    section: usize,
    length: usize,
    by_chance: bool,
}

impl Passages {
    /// The characters of a passage.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whole passages in a section; each is followed by one more character at least.
    fn of_section(&self) -> usize {
        (self.section - 1) / self.length
    }
}

impl Dataset for Passages {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.sections.len() * self.of_section()
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<(Tensor, Tensor)> {
        check_index("Passages", index, self.len())?;
        let (section, place) = (index / self.of_section(), index % self.of_section());
        let mut start = place * self.length;
        if self.by_chance {
            // The last one can't begin as much later as the others.
            let latest = self.section - 1 - self.length;
            start += rng.below(self.length.min(latest - start + 1));
        }
        let passage = &self.tokens[self.sections[section] + start..][..=self.length];
        let passage: Vec<i64> = passage.iter().map(|&token| i64::from(token)).collect();
        let of = |tokens| Tensor::from_slice(tokens, &[self.length], Device::Cpu);
        Ok((of(&passage[..self.length])?, of(&passage[1..])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(characters: usize) -> CharText {
        let text: String = ('a'..='z').cycle().take(characters).collect();
        CharText::of(&text, Path::new("text")).unwrap()
    }

    #[test]
    fn the_works_are_there() {
        let text = CharText::shakespeare().unwrap();
        assert_eq!(
            (text.tokens().len(), text.vocabulary().len()),
            (1_247_099, 76)
        );
        let start: Vec<i64> = text.tokens()[..25].iter().map(|&t| i64::from(t)).collect();
        assert_eq!(text.decode(&start).unwrap(), "HAMLET, PRINCE OF DENMARK");
        assert_eq!(text.encode("HAMLET").unwrap(), start[..6]);
        let error = text.encode("naïve").unwrap_err().to_string();
        assert!(error.contains('ï'), "{error}");
        assert!(text.decode(&[76]).unwrap_err().to_string().contains("76"));
    }

    #[test]
    fn passages_stay_within_their_sections_and_no_character_is_in_both_parts() {
        for (characters, length) in [(100 * 11, 10), (100 * 57 + 3, 8), (200, 1)] {
            let text = text(characters);
            let section = characters / 100;
            let (train, test) = text.split(length).unwrap();
            assert_eq!(train.len(), 90 * ((section - 1) / length));
            assert_eq!(test.len(), 10 * ((section - 1) / length));
            for (part, held_out) in [(&train, false), (&test, true)] {
                for index in 0..part.len() {
                    let mut rng = SampleRng::new(3, 0, index);
                    let (x, y) = part.get(index, &mut rng).unwrap();
                    let (x, y) = (x.to_vec::<i64>().unwrap(), y.to_vec::<i64>().unwrap());
                    assert_eq!((x.len(), &x[1..]), (length, &y[..length - 1]));
                    assert_eq!(y[length - 1], (x[length - 1] + 1) % 26);
                    let sections: Vec<usize> = (0..100)
                        .filter(|place| (place % 10 == 9) == held_out)
                        .collect();
                    assert_eq!(
                        part.sections,
                        sections.iter().map(|s| s * section).collect::<Vec<_>>()
                    );
                }
                let mut rng = SampleRng::new(0, 0, 0);
                assert!(part.get(part.len(), &mut rng).is_err());
            }
        }
    }

    #[test]
    fn passages_to_train_on_begin_elsewhere_each_time_and_those_to_test_on_do_not() {
        let (train, test) = text(100 * 57).split(20).unwrap();
        let starts = |part: &Passages, epoch| -> Vec<i64> {
            let start = |index| {
                let sample = part.get(index, &mut SampleRng::new(1, epoch, index));
                sample.unwrap().0.to_vec::<i64>().unwrap()[0]
            };
            (0..part.len()).map(start).collect()
        };
        assert_ne!(starts(&train, 0), starts(&train, 1));
        assert_eq!(starts(&test, 0), starts(&test, 1));
    }

    #[test]
    fn a_text_that_is_too_short_is_refused() {
        assert!(text(100 * 10).split(10).is_err());
        assert!(text(100 * 10).split(0).is_err());
        assert!(text(5).split(1).is_err());
        let error = CharText::of("", Path::new("empty.txt"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("empty.txt"), "{error}");
        assert!(CharText::from_file("no such file").is_err());
    }

    #[test]
    fn a_gzip_file_is_read_to_its_end_or_refused() {
        use std::io::Write;
        let member = |text: &str| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let (folder, both) = (
            tempfile::tempdir().unwrap(),
            [member("one"), member("two")].concat(),
        );
        let path = folder.path().join("text.gz");
        std::fs::write(&path, &both).unwrap();
        assert_eq!(CharText::from_file(&path).unwrap().tokens().len(), 6);
        for wrong in [
            [&both, &b"rest"[..]].concat(),
            both[..both.len() - 5].to_vec(),
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = CharText::from_file(&path).unwrap_err().to_string();
            assert!(error.contains("not a whole gzip file"), "{error}");
        }
    }

    #[test]
    fn text_is_more_than_ascii() {
        let text = CharText::of("ßaé\n", Path::new("text")).unwrap();
        assert_eq!(text.vocabulary(), ['\n', 'a', 'ß', 'é']);
        assert_eq!(text.decode(&[2, 1, 3, 0]).unwrap(), "ßaé\n");
    }
}

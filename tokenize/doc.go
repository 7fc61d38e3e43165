// Package tokenize turns text into token ids and back, and conversations and
// questions into prompts.
//
// It reads the byte-level BPE tokenizers of Qwen2, Qwen2.5 and the models made
// from them (DeepSeek-R1-Distill-Qwen), and gives the same ids as Hugging Face's
// tokenizers library, the reference here. In the order of the data:
//
//	load.go, config.go, pipeline.go   a Hugging Face folder -> Tokenizer
//	added.go                          special and other added tokens are cut out
//	normalize.go                      NFC, with the Unicode data of the reference
//	split.go, pattern.go, compile.go  text -> pieces, by the tokenizer's expression
//	bpe.go                            piece -> ids
//	bytelevel.go, stream.go           ids -> bytes -> text, at once or as they come
//	chat.go, jinja.go, template.go    messages or a question -> prompt
//	character.go                      small vocabularies of our own
//
// # Why not sugarme/tokenizer
//
// It is the Go port of the reference, and its types were meant to be the base of
// this package. They are not, for what was measured in version 0.3.0:
//
//   - Its words are quadratic: a word rebuilds its list of symbols for each
//     symbol added. A word of 20,000 letters took 9.7 s, here 2 ms. Words seen
//     for the first time went at 1.1 MB/s, here 40; loading took 0.61 s, here 0.09.
//   - Its loader panics on Qwen2's tokenizer.json, whose expression looks ahead
//     and so is none of package regexp's.
//   - Its classes are those of Go's Unicode 15, and it has not the reference's way
//     of repairing UTF-8.
//
// What would be left of it, a map of pairs, is shorter to write than to wrap.
package tokenize

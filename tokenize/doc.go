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
//   - Its BPE word rebuilds the list of symbols for each symbol it adds and keeps
//     its pairs in a heap of interfaces: SUGARME_FIGURES
//   - It has no Split pre-tokenizer with lookahead (its expressions are
//     regexp's), reads \p{L} and \p{N} by Go's Unicode 15, and repairs UTF-8 at
//     another rate of U+FFFD than the reference.
//
// What is left of it, a map of pairs, is shorter to write than to wrap.
package tokenize

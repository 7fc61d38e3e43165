// Package tokenize turns text into token ids and back, and conversations and questions into prompts.
//
// It reads byte-level BPE (Qwen2 to Qwen3.5, Llama 3, SmolLM, OLMo 2 and 3, LFM2, Mistral since Nemo) and BPE of
// characters with tokens of bytes for the others (Llama 2, Mistral, Gemma), and gives the same ids as Hugging Face's
// tokenizers library, the reference here. In the order of the data:
//
//	load.go, config.go, pipeline.go   a Hugging Face folder -> Tokenizer
//	added.go                          special and other added tokens are cut out
//	form.go                           spaces as ▁, tokens of bytes
//	normalize.go                      NFC, with the Unicode data of the reference
//	split.go, pattern.go, compile.go  text -> pieces, by the tokenizer's expression
//	bpe.go                            piece -> ids
//	bytelevel.go, stream.go           ids -> bytes -> text, at once or as they come
//	chat.go, jinja/, template.go      messages or a question -> prompt
//	turns.go                          messages -> which of their tokens the assistant wrote
//	character.go                      small vocabularies of our own
//
// # Why the libraries are not used
//
// Pre-tokenizer expressions are matched by our own code, not by dlclark/regexp2, because speed and linear time
// depend on it: Qwen's expression, written by hand in split.go, cuts 6 MB of problems at 48 MB/s where regexp2
// reaches 2.4 (our compiled expressions 2.8), and regexp2 goes back, so that an expression such as (?:a|aa)*b
// takes exponential time, 37 ms for 24 letters against 4 µs here. Its letters and numbers are also those of
// Go's Unicode version, not the reference's.
//
// sugarme/tokenizer is the Go port of the reference. It is the second opinion in the tests: opinion_test.go holds both
// to the same ids and texts, and go test -bench SecondOpinion ./tokenize compares their times. Version 0.3.0
//
//   - encodes short texts 35 times and a word of 2,000 letters 28 times as slowly, for
//     it rebuilds the list of symbols for each symbol that it adds;
//   - panics on Qwen2's tokenizer.json, whose expression has a lookahead, which
//     package regexp does not support, and cuts white space before a word wrongly
//     where it writes GPT-2's expression without one;
//   - leaves added tokens out, and merges long runs of one character out of order;
//   - has the character classes of Go's Unicode version, and repairs invalid UTF-8 in
//     another way than the reference.
package tokenize

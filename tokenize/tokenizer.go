package tokenize

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// A Tokenizer turns text into token ids and back. It is safe for concurrent use.
type Tokenizer struct {
	names   []string // from an id to its name in the vocabulary; empty if no token has the id
	bytes   []string // id -> the bytes to which it decodes
	special []bool   // id -> left out by Decode with skipSpecial
	ids     map[string]int32

	form            form
	addedRaw        addedSet // added tokens that are searched in the original text
	addedNormalized addedSet // added tokens that are searched after normalization
	cutters         []cutter // each splits the pieces of the previous cutter
	bpe             *bpe

	idsBefore, idsAfter []int32 // tokens that Encode puts around a text (BOS, EOS)

	bos, eos string
	chat     *chatTemplate
}

// Encode returns the ids of text as the reference's encode(text) does: special and other added tokens are found
// in the text, and there is a BOS in front if the tokenizer adds one (DeepSeek's does, Qwen's does not). For
// text that already has its BOS, as rendered chats do, use EncodeChat.
//
// Invalid UTF-8 is read as U+FFFD, as Decode writes it. A byte that is not in the vocabulary (possible only in
// small vocabularies) is left out, as in the reference: see Check.
func (t *Tokenizer) Encode(text string) []int32 {
	ids := make([]int32, 0, len(text)/3+len(t.idsBefore)+len(t.idsAfter)+4)
	ids = append(ids, t.idsBefore...)
	ids = t.appendText(ids, text)
	return append(ids, t.idsAfter...)
}

// appendText appends the ids of text and nothing around it: it cuts added tokens out, once of the text and once of what
// the normalizer makes of it, and gives the rest to cut, with spaces as ▁ where the form has them so.
func (t *Tokenizer) appendText(ids []int32, text string) []int32 {
	if !utf8.ValidString(text) {
		text = string(appendValid(nil, []byte(text)))
	}
	atStart := true // nothing stands before in the text, which Metaspace wants to know
	found := func(id int32) { atStart = false; ids = append(ids, id) }
	t.addedRaw.split(text, func(s string) {
		begins := atStart
		atStart = false
		t.addedNormalized.split(t.form.apply(s), func(s string) {
			if t.form.metaspace != nil {
				s = t.form.metaspace(s, begins)
			}
			begins = false
			ids = t.cut(ids, s, t.cutters)
		}, func(id int32) { begins = false; found(id) })
	}, found)
	return ids
}

// cut appends the ids of s, which each of the cutters in turn cuts into smaller pieces.
func (t *Tokenizer) cut(ids []int32, s string, cutters []cutter) []int32 {
	if len(cutters) == 0 {
		return t.bpe.append(ids, s)
	}
	for i := 0; i < len(s); {
		start, end := cutters[0](s, i)
		if start < end {
			ids = t.cut(ids, s[start:end], cutters[1:])
		}
		i = end
	}
	return ids
}

// Check returns an error that names the first character of text that the vocabulary lacks, so that Encode would
// leave it out. Vocabularies with all 256 bytes, as those of real models, have every character.
func (t *Tokenizer) Check(text string) error {
	if t.bpe.unk >= 0 {
		return nil
	}
	return t.CheckKnown(text)
}

// CheckKnown refuses what Check refuses, and also a character for which the vocabulary has only
// its token for unknown characters: the model could not learn it.
func (t *Tokenizer) CheckKnown(text string) error {
	if !t.form.ofCharacters && !slices.Contains(t.bpe.bytes[:], -1) { // each byte has a token
		return nil
	}
	var err error
	check := func(s string) {
		for i, r := range s {
			if t.form.ofCharacters {
				if r == ' ' && t.form.metaspace != nil || t.bpe.knows(t.form.apply(string(r))) { // a space is written as ▁
					continue
				}
			}
			for _, b := range []byte(string(r)) {
				if err == nil && (t.bpe.bytes[b] < 0 || t.form.ofCharacters) { // with ofCharacters, knows(r) was false
					err = fmt.Errorf("tokenize: %q in %.40q is not in the vocabulary", r, s[i:])
				}
			}
		}
	}
	t.addedRaw.split(text, func(s string) { t.addedNormalized.split(s, check, func(int32) {}) }, func(int32) {})
	return err
}

// Decode returns the text of ids: their bytes, joined, with each invalid UTF-8 sequence
// replaced by one U+FFFD. Ids without a token (a model may have more logits than its tokenizer
// has tokens) add nothing; with skipSpecial, special tokens add nothing either.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	buf := make([]byte, 0, 5*len(ids))
	if t.form.ofCharacters {
		var d charDecoder
		for _, id := range ids {
			buf = d.add(buf, t, id, skipSpecial)
		}
		return string(d.flush(buf))
	}
	for _, id := range ids {
		buf = t.appendToken(buf, id, skipSpecial)
	}
	if !utf8.Valid(buf) {
		buf = appendValid(make([]byte, 0, len(buf)+16), buf)
	}
	return string(buf)
}

func (t *Tokenizer) appendToken(dst []byte, id int32, skipSpecial bool) []byte {
	if id < 0 || int(id) >= len(t.bytes) || skipSpecial && t.special[id] {
		return dst
	}
	return append(dst, t.bytes[id]...)
}

// VocabSize is one more than the largest id that has a token. Models may have more logits than that, never fewer.
func (t *Tokenizer) VocabSize() int { return len(t.names) }

// BOS returns the id of the token that begins a text; ok is false if the tokenizer has none.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.ID(t.bos) }

// EOS returns the id of the token that ends a text; ok is false if the tokenizer has
// none. The generation_config.json of a model may name others.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.ID(t.eos) }

// ID returns the id of the token with that name in the vocabulary, where " the" is
// written "Ġthe"; ok is false if no token has it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.ids[token]
	return id, ok && token != ""
}

// Token returns the name of id in the vocabulary, empty if no token has that id.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.names) {
		return ""
	}
	return t.names[id]
}

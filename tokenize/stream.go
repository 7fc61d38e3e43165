package tokenize

import (
	"slices"
	"unicode/utf8"
)

// A StreamDecoder decodes ids one after the other. The results of Add and of the last Flush,
// joined, are what Decode returns for all ids. No call returns a part of a character.
type StreamDecoder struct {
	// SkipSpecial is that of Decode, and Keep the names of special tokens that are decoded all
	// the same. Both may be set before the first Add.
	SkipSpecial bool
	Keep        []string

	t    *Tokenizer
	text charDecoder // for vocabularies of characters
	held []byte      // the beginning of a character; at most 3 bytes between calls
}

// NewDecoder returns a decoder at the beginning of a text.
func (t *Tokenizer) NewDecoder() *StreamDecoder { return &StreamDecoder{t: t} }

// Add returns the text that id completes, often but not always its own: none for a special token that is skipped.
func (d *StreamDecoder) Add(id int32) string {
	skip := d.SkipSpecial && !slices.Contains(d.Keep, d.t.Token(id))
	if d.t.form.ofCharacters { // tokens stand for characters and not for bytes: d.text decodes these
		return string(d.text.add(nil, d.t, id, skip))
	}
	buf := d.t.appendToken(d.held, id, skip) // behind the bytes of a character that has no end yet
	if len(buf) == 0 {
		return ""
	}
	whole := wholeLen(buf)
	text := string(buf[:whole])
	if !utf8.ValidString(text) {
		text = string(appendValid(nil, buf[:whole]))
	}
	d.held = append(d.held[:0], buf[whole:]...)
	return text
}

// Bytes returns the bytes that id adds after other tokens, also if it is special: a part
// of a character for some tokens. An id without a token adds none.
func (d *StreamDecoder) Bytes(id int32) []byte {
	if c, ok := d.t.form.byteIDs[id]; ok {
		return []byte{c}
	}
	return d.t.appendToken(nil, id, false)
}

// IsAdded reports whether id is an added token, which is searched in a text before it is split.
func (d *StreamDecoder) IsAdded(id int32) bool {
	name := d.t.Token(id)
	return name != "" && (d.t.addedRaw.has(name) || d.t.addedNormalized.has(d.t.form.apply(name)))
}

// Pending returns the text that Flush would add if it consists of whole characters, else
// "". Another byte token may still change it.
func (d *StreamDecoder) Pending() string {
	if !d.t.form.ofCharacters || !utf8.Valid(d.text.heldBytes) {
		return ""
	}
	ahead := d.text
	return string(ahead.flush(nil))
}

// Flush ends a text. It returns one U+FFFD if the last character is not complete,
// else nothing. The decoder then begins a new text.
func (d *StreamDecoder) Flush() string {
	if d.t.form.ofCharacters {
		text := string(d.text.flush(nil))
		d.text = charDecoder{}
		return text
	}
	text := string(appendValid(nil, d.held))
	d.held = d.held[:0]
	return text
}

// wholeLen returns the length of b without an incomplete character at its end.
func wholeLen(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if !utf8.FullRune(b[len(b)-n:]) {
			return len(b) - n
		}
	}
	return len(b)
}

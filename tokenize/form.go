package tokenize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A form says how a text is changed before it is cut into pieces, and how tokens become
// text again. Byte-level vocabularies have at most NFC. Those in the style of Llama 2
// write a space as ▁, and a character without a token as tokens of its bytes, <0xE4>.
type form struct {
	steps []func(string) string // steps of the normalizer
	// metaspace is the pre-tokenizer's step; begins says whether s is at the beginning of the text.
	metaspace func(s string, begins bool) string

	// How tokens become text, if they stand for characters and not for bytes.
	ofCharacters    bool
	replacements    []string // texts and their replacements, in order
	byteIDs         map[int32]byte
	stripSpaces     int  // number of spaces to remove at the beginning of a text
	firstLosesSpace bool // the first token loses its ▁, as in Metaspace
}

func (f *form) apply(s string) string {
	for _, step := range f.steps {
		s = step(s)
	}
	return s
}

// scheme says where Metaspace, as pre-tokenizer and as decoder, puts its replacement before a text.
func (s stage) scheme() (string, error) {
	if utf8.RuneCountInString(s.Replacement) != 1 {
		return "", fmt.Errorf("Metaspace with the replacement %q, want one character", s.Replacement)
	}
	if s.PrefixSpace != nil && !*s.PrefixSpace {
		return "never", nil
	}
	return cmp.Or(s.Scheme, "always"), nil
}

// readCharacters reads the pre-tokenizer of a vocabulary of characters: Metaspace first, if
// there is one, then any number of Split and Digits stages.
func (b *builder) readCharacters(stages []stage) error {
	for _, m := range stages {
		if m.Type != "Metaspace" {
			if err := b.readCutter(m); err != nil {
				return err
			}
			continue
		}
		if b.t.form.metaspace != nil || len(b.t.cutters) > 0 {
			return errors.New("Metaspace is supported as the first stage only")
		}
		scheme, err := m.scheme()
		if err != nil {
			return err
		}
		b.t.form.metaspace = func(s string, begins bool) string {
			s = strings.ReplaceAll(s, " ", m.Replacement)
			if (scheme == "always" || scheme == "first" && begins) && !strings.HasPrefix(s, m.Replacement) {
				s = m.Replacement + s
			}
			return s
		}
		if m.Split == nil || *m.Split { // each piece ends before the next replacement
			b.t.cutters = append(b.t.cutters, func(s string, i int) (start, end int) {
				_, n := utf8.DecodeRuneInString(s[i:])
				end, _ = literalFinder(m.Replacement)(s, i+n)
				return i, end
			})
		}
	}
	return nil
}

// readCharDecoder reads the decoder of a vocabulary of characters.
func (b *builder) readCharDecoder(stages []stage) error {
	f := &b.t.form
	for _, s := range stages {
		switch s.Type {
		case "", "Fuse": // texts of tokens are joined anyway
		case "ByteFallback":
			f.byteIDs = map[int32]byte{} // for finishForm to fill
		case "Replace":
			old, err := s.replaced()
			if err != nil {
				return err
			}
			f.replacements = append(f.replacements, old, s.Content)
		case "Strip":
			if s.Content != " " || s.Stop != 0 || s.Start < 0 {
				return errors.New("Strip is supported for spaces at the beginning only")
			}
			f.stripSpaces = s.Start
		case "Metaspace":
			scheme, err := s.scheme()
			if err != nil {
				return err
			}
			f.replacements, f.firstLosesSpace = append(f.replacements, s.Replacement, " "), scheme != "never"
		default:
			return fmt.Errorf("%q is not supported for a vocabulary of characters (have Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence)", s.Type)
		}
	}
	return nil
}

// byteOf returns the byte that a token such as <0xE4> stands for.
func byteOf(name string) (byte, bool) {
	var c byte
	if len(name) != 6 || !strings.HasPrefix(name, "<0x") || name[5] != '>' {
		return 0, false
	}
	_, err := fmt.Sscanf(name[3:5], "%02X", &c)
	return c, err == nil
}

// finishForm sets the texts of the tokens of characters (t.bytes) from their names, with a space for ▁, and which
// tokens are bytes.
func (t *Tokenizer) finishForm() {
	if !t.form.ofCharacters {
		return
	}
	names := slices.Clone(t.names)
	for _, a := range t.addedNormalized.tokens {
		names[a.ID] = a.Content // the reference decodes these by their searched form
	}
	for id, name := range names {
		if c, ok := byteOf(name); ok && t.form.byteIDs != nil {
			t.form.byteIDs[int32(id)] = c
		}
		for i := 0; i < len(t.form.replacements); i += 2 {
			name = strings.ReplaceAll(name, t.form.replacements[i], t.form.replacements[i+1])
		}
		t.bytes[id] = name
	}
}

// A charDecoder turns tokens of characters into text, one after the other.
type charDecoder struct {
	heldBytes []byte // byte tokens so far; their text is known when the sequence ends
	begun     bool   // there was a token before
	strip     int
}

// add appends the text that an id completes. Tokens of bytes are held back in d.heldBytes until another token follows.
// The first token, and spaces at the beginning, may lose what the encoder put there.
func (d *charDecoder) add(dst []byte, t *Tokenizer, id int32, skipSpecial bool) []byte {
	isToken := id >= 0 && int(id) < len(t.names) && t.names[id] != ""
	if !isToken || skipSpecial && t.special[id] {
		return dst
	}
	begins := !d.begun
	if begins {
		d.begun, d.strip = true, t.form.stripSpaces
	}
	if c, ok := t.form.byteIDs[id]; ok {
		d.heldBytes = append(d.heldBytes, c)
		return dst
	}
	dst = d.flush(dst)
	text := t.bytes[id]
	if begins && t.form.firstLosesSpace {
		// The decoder of the reference drops every ▁ of the first token.
		text = strings.ReplaceAll(t.names[id], t.form.replacements[len(t.form.replacements)-2], "")
	}
	return d.append(dst, text)
}

// append appends a text without the spaces that the whole text loses.
func (d *charDecoder) append(dst []byte, text string) []byte {
	for ; d.strip > 0 && text != ""; d.strip-- {
		if text[0] != ' ' {
			d.strip = 0
			break
		}
		text = text[1:]
	}
	return append(dst, text...)
}

// flush ends a sequence of byte tokens: if it is not valid UTF-8, each byte becomes U+FFFD.
func (d *charDecoder) flush(dst []byte) []byte {
	if len(d.heldBytes) == 0 {
		return dst
	}
	text := string(d.heldBytes)
	if !utf8.ValidString(text) {
		text = strings.Repeat("\ufffd", len(d.heldBytes))
	}
	d.heldBytes = d.heldBytes[:0]
	return d.append(dst, text)
}

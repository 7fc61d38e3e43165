package tokenize

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	reading "onering/internal/files" // tests have a function called files
	"onering/internal/ordered"
	"onering/internal/strict"
)

// Load reads the tokenizer of a Hugging Face model folder:
//
//   - tokenizer.json; or, without it, vocab.json and merges.txt of a Qwen2 or
//     GPT-2 tokenizer
//   - tokenizer_config.json, if present: BOS, EOS, further added tokens, chat template
//   - chat_template.jinja and additional_chat_templates/NAME.jinja, if present: the
//     chat templates, used instead of those of the configuration
//
// It reads byte-level BPE and BPE of characters with byte fallback, and its errors name what is not supported. The
// error wraps fs.ErrNotExist if the folder has no tokenizer.
func Load(dir string) (*Tokenizer, error) {
	folder, err := reading.OpenFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = MissingError("no such folder")
	}
	if err != nil {
		return nil, fmt.Errorf("tokenize: load %q: %w", dir, err)
	}
	defer folder.Close()
	t, err := load(folder.FS())
	if err != nil {
		return nil, fmt.Errorf("tokenize: load %q: %w", dir, err)
	}
	return t, nil
}

// A MissingError says why a folder has no tokenizer. It is fs.ErrNotExist.
type MissingError string

func (e MissingError) Error() string { return string(e) + ": " + fs.ErrNotExist.Error() }

// Unwrap returns fs.ErrNotExist.
func (MissingError) Unwrap() error { return fs.ErrNotExist }

// missing says which tokenizer files a folder lacks and how to convert a tokenizer in another form.
func missing(fsys fs.FS) error {
	f, err := fsys.Open("tokenizer.model")
	if err != nil {
		return MissingError("neither tokenizer.json nor both vocab.json and merges.txt")
	}
	f.Close()
	return MissingError("neither tokenizer.json nor both vocab.json and merges.txt, but tokenizer.model, which is " +
		"not read: make tokenizer.json of it with transformers, AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)")
}

// LoadFS is Load for the files at the root of fsys, for example embedded ones.
func LoadFS(fsys fs.FS) (*Tokenizer, error) {
	t, err := load(fsys)
	if err != nil {
		return nil, fmt.Errorf("tokenize: load: %w", err)
	}
	return t, nil
}

// load reads the tokenizer of a folder: tokenizer.json or, in older folders, vocab.json and merges.txt.
func load(fsys fs.FS) (*Tokenizer, error) {
	config, err := readConfig(fsys)
	if err != nil {
		return nil, err
	}
	b := &builder{t: &Tokenizer{bpe: newBPE()}}
	switch data, err := readFile(fsys, "tokenizer.json"); {
	case err == nil:
		if err := b.readTokenizer(data); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		if b.added, err = config.withConfigured(fsys, b.added, b.t.ids); err != nil {
			return nil, err
		}
	case errors.Is(err, fs.ErrNotExist):
		if err := b.readVocabAndMerges(fsys, config); err != nil {
			return nil, err
		}
		t, err := b.finish(config)
		if err == nil {
			err = config.surround(t) // BOS and EOS; tokenizer.json says itself what stands around a text
		}
		return t, err
	default:
		return nil, err
	}
	return b.finish(config)
}

// A builder collects a tokenizer while its files are read.
type builder struct {
	t     *Tokenizer
	added []addedToken

	unk     string
	fuseUnk bool
	text    []byte // scratch
}

// maxID bounds the ids of a vocabulary, and so the memory that a hostile folder can
// make Load allocate. The largest vocabularies in use have about 2^18 tokens.
const maxID = 1 << 22

// readTokenizer reads tokenizer.json. It ignores truncation and padding: they are
// settings of a training pipeline, not of the vocabulary.
func (b *builder) readTokenizer(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("not valid UTF-8")
	}
	parts, err := members(data)
	if err != nil {
		return err
	}
	if parts["model"] == nil {
		return errors.New(`no "model"`)
	}
	if added := parts["added_tokens"]; added != nil {
		if err := strict.JSON(added, &b.added); err != nil {
			return fmt.Errorf("added_tokens: %w", err)
		}
	}
	// Symbols are bytes, or else characters: this decides how all parts are read.
	b.t.form.ofCharacters = !bytes.Contains(parts["pre_tokenizer"], []byte(`"ByteLevel"`))
	if err := b.readModel(parts["model"]); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	for _, part := range []struct {
		name string
		read func([]stage) error
	}{
		{"normalizer", b.readNormalizer},
		{"pre_tokenizer", b.readPreTokenizer},
		{"post_processor", b.readPostProcessor},
		{"decoder", b.readDecoder},
	} {
		stages, err := stagesOf(parts[part.name])
		if err == nil {
			err = part.read(stages)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// members returns the members of a JSON object, undecoded.
func members(data []byte) (map[string]json.RawMessage, error) {
	parts := map[string]json.RawMessage{}
	s := &ordered.Scanner{Data: data}
	err := s.Members(func(key []byte) (err error) {
		parts[string(key)], err = s.Raw()
		return err
	})
	return parts, cmp.Or(err, s.End())
}

// modelOptions are the settings of "model", besides the vocabulary and the merges.
type modelOptions struct {
	Type         string   `json:"type"`
	Unk          *string  `json:"unk_token"`
	Fuse         bool     `json:"fuse_unk"`
	Prefix       string   `json:"continuing_subword_prefix"`
	Suffix       string   `json:"end_of_word_suffix"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
	Dropout      *float64 `json:"dropout"`
}

// check returns an error that names a setting that is not supported.
func (o *modelOptions) check() error {
	switch {
	case o.Type != "BPE" && o.Type != "":
		return fmt.Errorf("type %q is not supported, only \"BPE\" is, which all models of the known families have", o.Type)
	case o.Prefix != "" || o.Suffix != "":
		return errors.New("continuing_subword_prefix and end_of_word_suffix are not supported")
	case o.Dropout != nil && *o.Dropout != 0:
		return errors.New("dropout is not supported")
	}
	return nil
}

// readModel reads "model": byte-pair encoding, its vocabulary and its merges. form.ofCharacters says whether the
// symbols of the vocabulary are characters, or else bytes.
func (b *builder) readModel(raw json.RawMessage) error {
	rest, err := members(raw)
	if err != nil {
		return err
	}
	vocab, merges := rest["vocab"], rest["merges"]
	delete(rest, "vocab")
	delete(rest, "merges")
	var options modelOptions
	for _, key := range slices.Sorted(maps.Keys(rest)) { // without the two, which are large and have readers of their own
		if err := strict.JSON(fmt.Appendf(nil, "{%q: %s}", key, rest[key]), &options); err != nil {
			return err
		}
	}
	if err := options.check(); err != nil {
		return err
	}
	if options.ByteFallback && !b.t.form.ofCharacters {
		return errors.New("byte_fallback is not supported for byte-level vocabularies, which have all bytes")
	}
	if vocab == nil || merges == nil {
		return errors.New(`want "vocab" and "merges"`)
	}
	if options.Unk != nil {
		b.unk, b.fuseUnk = *options.Unk, options.Fuse
	}
	if err := b.readVocab(vocab); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if err := b.readMerges(merges); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	if b.t.form.ofCharacters {
		b.t.bpe.charIDs, b.t.bpe.byteFallback = maps.Clone(b.t.ids), options.ByteFallback // a clone: added tokens come to ids later
	}
	if options.IgnoreMerges {
		b.t.bpe.wholePieces = make(map[string]int32, len(b.t.ids)) // by the text of a piece
		for name, id := range b.t.ids {
			if !b.t.form.ofCharacters {
				name = b.t.bytes[id]
			}
			b.t.bpe.wholePieces[name] = id
		}
	}
	return nil
}

// readVocab reads {"name": id, ...} into names, bytes and ids of the Tokenizer, and the ids of single bytes into its bpe.
func (b *builder) readVocab(raw []byte) error {
	// Names and bytes go into one buffer and become parts of one string: a quarter of a million small strings
	// would take most of the time. The bytes of a token are left empty if they are the same as its name.
	type entry struct{ id, name, bytes, end int } // of the buffer: where name and bytes begin, and where bytes end
	entries := make([]entry, 0, len(raw)/16)
	text := make([]byte, 0, len(raw))
	size := 0
	s := &ordered.Scanner{Data: raw}
	err := s.Members(func(key []byte) error {
		id, err := integer(s)
		if err != nil {
			return err
		}
		if id >= maxID {
			return fmt.Errorf("id %d of token %q is too large", id, key)
		}
		e := entry{id: id, name: len(text)}
		text = append(text, key...)
		e.bytes = len(text)
		text = appendBytes(text, text[e.name:])
		if bytes.Equal(text[e.name:e.bytes], text[e.bytes:]) { // the same as the name
			text = text[:e.bytes]
		}
		e.end = len(text)
		entries = append(entries, e)
		size = max(size, id+1)
		return nil
	})
	if err = cmp.Or(err, s.End()); err != nil {
		return err
	}
	t, all := b.t, string(text)
	t.names, t.bytes, t.special = make([]string, size), make([]string, size), make([]bool, size)
	t.ids = make(map[string]int32, len(entries)+len(b.added))
	for _, e := range entries {
		name, raw := all[e.name:e.bytes], all[e.bytes:e.end]
		if raw == "" {
			raw = name
		}
		if old := t.names[e.id]; old != "" && old != name {
			return fmt.Errorf("id %d belongs to both %q and %q", e.id, old, name)
		}
		if old, ok := t.ids[name]; ok && int(old) != e.id {
			return fmt.Errorf("token %q has both ids %d and %d", name, old, e.id)
		}
		t.names[e.id], t.bytes[e.id] = name, raw
		t.ids[name] = int32(e.id)
	}
	for c := range t.bpe.bytes { // each byte is a symbol of a byte-level vocabulary
		if id, ok := t.ids[string(byteToRune[c])]; ok && !t.form.ofCharacters {
			t.bpe.bytes[c] = id
		}
	}
	return nil
}

// readMerges reads ["a b", ...] or [["a", "b"], ...], the best merge first. It needs the result of readVocab.
func (b *builder) readMerges(raw []byte) error {
	b.startMerges(len(raw) / 16)
	s := &ordered.Scanner{Data: raw}
	err := s.Elements(func() error {
		if s.Peek() == '"' {
			both, err := s.Text()
			if err != nil {
				return err
			}
			return b.addMergeLine(both)
		}
		var parts [2][]byte
		n := 0
		err := s.Elements(func() error {
			part, err := s.Text()
			if n < 2 {
				parts[n] = part
			}
			n++
			return err
		})
		if err == nil && n != 2 {
			err = s.Errorf("a merge of %d tokens, want 2", n)
		}
		if err != nil {
			return err
		}
		return b.addMerge(parts[0], parts[1])
	})
	return cmp.Or(err, s.End())
}

func (b *builder) startMerges(n int) {
	b.t.bpe.ranks = make(map[uint64]int32, n)
	b.t.bpe.merged = make([]int32, 0, n)
}

func (b *builder) addMergeLine(line []byte) error {
	left, right, ok := bytes.Cut(line, []byte(" "))
	if !ok || bytes.IndexByte(right, ' ') >= 0 {
		return fmt.Errorf("merge %d: %q, want two tokens with a space between", len(b.t.bpe.merged)+1, line)
	}
	return b.addMerge(left, right)
}

// addMerge adds the next best merge: left and right, tokens of the vocabulary, become the token of their joined bytes.
func (b *builder) addMerge(left, right []byte) error {
	l, okL := b.t.ids[string(left)]
	r, okR := b.t.ids[string(right)]
	b.text = append(append(b.text[:0], left...), right...)
	whole, ok := b.t.ids[string(b.text)]
	bpe := b.t.bpe
	if !okL || !okR || !ok {
		return fmt.Errorf("merge %d: of %q and %q, want both and what they make in the vocabulary", len(bpe.merged)+1, left, right)
	}
	bpe.ranks[pair(l, r)] = int32(len(bpe.merged))
	bpe.merged = append(bpe.merged, whole)
	return nil
}

// readVocabAndMerges reads the two files of tokenizers without tokenizer.json; their
// other settings are those of their Python class.
func (b *builder) readVocabAndMerges(fsys fs.FS, config *configFile) error {
	vocab, err := readFile(fsys, "vocab.json")
	var merges []byte
	if err == nil {
		merges, err = readFile(fsys, "merges.txt")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return missing(fsys)
	}
	if err != nil {
		return err
	}
	pattern := qwenPattern
	switch class := strings.TrimSuffix(config.Class, "Fast"); class {
	case "Qwen2Tokenizer", "":
		b.t.form.steps = append(b.t.form.steps, nfc)
	case "GPT2Tokenizer":
		pattern = gptPattern
	default:
		return fmt.Errorf("tokenizer_class %q without tokenizer.json is not supported: save the tokenizer with transformers' AutoTokenizer, which writes it", class)
	}
	find, err := newFinder(pattern)
	if err != nil {
		return err
	}
	b.t.cutters = []cutter{find.isolated}
	if !utf8.Valid(vocab) {
		return errors.New("vocab.json: not valid UTF-8")
	}
	if err := b.readVocab(vocab); err != nil {
		return fmt.Errorf("vocab.json: %w", err)
	}
	lines := bytes.Split(merges, []byte("\n"))
	b.startMerges(len(lines))
	for i, line := range lines {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 || bytes.HasPrefix(line, []byte("#version")) {
			continue
		}
		if err := b.addMergeLine(line); err != nil {
			return fmt.Errorf("merges.txt:%d: %w", i+1, err)
		}
	}
	b.added, err = config.addedTokens(fsys)
	return err
}

// finish completes the Tokenizer: with the added tokens, the token for unknown symbols, the texts of tokens, and, from
// config, BOS, EOS and the chat template. It checks the ids that tokenizer.json puts around a text.
func (b *builder) finish(config *configFile) (*Tokenizer, error) {
	t := b.t
	for _, a := range b.added {
		if a.Content == "" {
			continue // the reference ignores these
		}
		if err := b.addToken(a); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.addedRaw.build(), t.addedNormalized.build()); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.idsBefore, t.idsAfter) {
		if id < 0 || int(id) >= len(t.names) {
			return nil, fmt.Errorf("post_processor: no token has the id %d", id)
		}
	}
	if b.unk != "" {
		id, ok := t.ids[b.unk]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", b.unk)
		}
		t.bpe.unk, t.bpe.fuseUnk = id, b.fuseUnk
	}
	t.finishForm()
	t.bpe.startCache(len(t.names))
	t.bos, t.eos = string(config.BOS), string(config.EOS)
	t.chat = config.ChatTemplate.template(config.tokens())
	return t, nil
}

// addToken gives an added token its id, which the vocabulary may have, too, and has it searched in normalized or raw text.
func (b *builder) addToken(a addedToken) error {
	t := b.t
	if a.ID < 0 || a.ID >= maxID {
		return fmt.Errorf("added token %q: id %d is out of range", a.Content, a.ID)
	}
	if id, ok := t.ids[a.Content]; ok && id != a.ID {
		return fmt.Errorf("added token %q has id %d, but %d in the vocabulary", a.Content, a.ID, id)
	}
	if n := int(a.ID) + 1 - len(t.names); n > 0 {
		t.names = append(t.names, make([]string, n)...)
		t.bytes = append(t.bytes, make([]string, n)...)
		t.special = append(t.special, make([]bool, n)...)
	}
	if old := t.names[a.ID]; old != "" && old != a.Content {
		return fmt.Errorf("added token %q has the id of %q, %d", a.Content, old, a.ID)
	}
	t.names[a.ID], t.ids[a.Content] = a.Content, a.ID
	t.bytes[a.ID] = string(appendBytes(nil, []byte(a.Content))) // the reference decodes it as a name of the vocabulary
	t.special[a.ID] = a.Special
	if a.Normalized && len(t.form.steps) > 0 {
		a.Content = t.form.apply(a.Content)
		t.addedNormalized.add(a)
	} else if !t.addedRaw.has(a.Content) {
		t.addedRaw.add(a)
	}
	return nil
}

// integer reads a non-negative integer of at most nine digits.
func integer(s *ordered.Scanner) (int, error) {
	s.Peek() // skips white space
	start, n := s.Pos, 0
	for ; s.Pos < len(s.Data) && s.Data[s.Pos]-'0' < 10; s.Pos++ {
		if s.Pos-start == 9 {
			return 0, s.Errorf("number too large")
		}
		n = n*10 + int(s.Data[s.Pos]-'0')
	}
	if s.Pos == start {
		return 0, s.Errorf("want a non-negative integer")
	}
	if s.Pos < len(s.Data) && (s.Data[s.Pos] == '.' || s.Data[s.Pos]|0x20 == 'e') {
		return 0, s.Errorf("want an integer")
	}
	return n, nil
}

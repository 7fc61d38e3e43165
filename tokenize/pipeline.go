package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onering/internal/strict"
)

// A stage is one of the stages around the model in tokenizer.json. Each can be null,
// absent, or a Sequence. It has the settings of all kinds.
type stage struct {
	Type string
	// The stages of a Sequence, under the name for each kind.
	Normalizers, Pretokenizers, Processors, Decoders []stage

	Pattern          struct{ String, Regex *string } // of Split and Replace
	Behavior         string
	Invert           bool
	Prepend, Content string
	Individual       bool   `json:"individual_digits"`
	PrefixSpace      *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	Scheme           string `json:"prepend_scheme"` // always, first or never
	Replacement      string
	Split            *bool
	Start, Stop      int
	Single           []struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
}

// stagesOf reads a stage, and returns those of a Sequence in their order. It refuses stages that are too many, or that
// make a text much longer.
func stagesOf(raw json.RawMessage) ([]stage, error) {
	var whole stage
	if len(raw) > 0 {
		if err := strict.JSON(raw, &whole); err != nil {
			return nil, err
		}
	}
	all, err := whole.flat(0)
	if err == nil && len(all) > maxStages && len(whole.Processors) == 0 { // post-processors have a limit of ids instead
		err = fmt.Errorf("more than %d stages", maxStages)
	}
	growth := 1.0
	for _, s := range all {
		if old, unfit := s.replaced(); s.Type == "Replace" && unfit == nil {
			growth *= max(1, float64(len(s.Content))/float64(len(old)))
		}
		growth *= 1 + float64(len(s.Prepend))/1024 // by its share of a text of 1024 bytes; most are longer
	}
	if err == nil && growth > maxGrowth {
		err = fmt.Errorf("its stages can make a text more than %d times as long", maxGrowth)
	}
	return all, err
}

// Limits of the stages, which work on every text. Stages in use are far below them: ▁ for a space is 3 times as long.
const (
	maxStages = 64
	maxGrowth = 32
)

// flat returns the stages of a Sequence and of those inside it, or s itself.
func (s stage) flat(depth int) (all []stage, err error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested deeper than %d", maxNesting)
	}
	if s.Type != "Sequence" {
		return []stage{s}, nil
	}
	for _, part := range slices.Concat(s.Normalizers, s.Pretokenizers, s.Processors, s.Decoders) {
		parts, err := part.flat(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
	}
	return all, nil
}

// replaced returns the text that a Replace stage searches.
func (s stage) replaced() (string, error) {
	if s.Pattern.String == nil || *s.Pattern.String == "" {
		return "", errors.New("Replace is supported with a text only, not with an expression")
	}
	return *s.Pattern.String, nil
}

// readNormalizer accepts null, NFC, Prepend, Replace and sequences of them.
func (b *builder) readNormalizer(stages []stage) error {
	for _, s := range stages {
		step := nfc
		switch s.Type {
		case "":
			continue
		case "NFC":
		case "Prepend":
			step = func(text string) string {
				if text == "" {
					return text
				}
				return s.Prepend + text
			}
		case "Replace":
			old, err := s.replaced()
			if err != nil {
				return err
			}
			step = func(text string) string { return strings.ReplaceAll(text, old, s.Content) }
		default:
			return fmt.Errorf("%q is not supported (have NFC, Prepend, Replace, Sequence)", s.Type)
		}
		b.t.form.steps = append(b.t.form.steps, step)
	}
	return nil
}

// readPreTokenizer accepts ByteLevel, alone or after any number of Split and Digits stages.
func (b *builder) readPreTokenizer(stages []stage) error {
	if b.t.form.ofCharacters {
		return b.readCharacters(stages)
	}
	byteLevel := false
	for _, s := range stages {
		if byteLevel {
			return fmt.Errorf("%q after ByteLevel is not supported", s.Type)
		}
		byteLevel = s.Type == "ByteLevel"
		if err := b.readCutter(s); err != nil {
			return err
		}
	}
	if !byteLevel {
		return errors.New("no ByteLevel at its end: only byte-level vocabularies are supported")
	}
	return nil
}

// readCutter adds the cutter of a stage, which cuts each piece of the stages before into smaller ones.
func (b *builder) readCutter(s stage) error {
	switch s.Type {
	case "":
		return nil
	case "Split":
		var find finder
		switch p := s.Pattern; {
		case p.Regex != nil:
			var err error
			if find, err = newFinder(*p.Regex); err != nil {
				return err
			}
		case p.String != nil && *p.String != "":
			find = literalFinder(*p.String)
		default:
			return errors.New("a Split has no pattern")
		}
		cut, err := find.cutter(s.Behavior, s.Invert)
		if err != nil {
			return err
		}
		return addStage(b.t, cut)
	case "Digits":
		if s.Individual {
			return b.addCutter(`\p{N}`)
		}
		return b.addCutter(`\p{N}+`)
	case "ByteLevel":
		if s.PrefixSpace != nil && *s.PrefixSpace {
			return errors.New("ByteLevel with add_prefix_space is not supported")
		}
		if s.UseRegex == nil || *s.UseRegex {
			return b.addCutter(gptPattern) // the expression that is built into ByteLevel
		}
		return nil
	}
	return fmt.Errorf("%q is not supported (have Split, Digits, ByteLevel, Sequence)", s.Type)
}

func (b *builder) addCutter(pattern string) error {
	find, err := newFinder(pattern)
	if err != nil {
		return err
	}
	return addStage(b.t, find.isolated)
}

func addStage(t *Tokenizer, cut cutter) error {
	if len(t.cutters) == maxStages {
		return fmt.Errorf("more than %d stages", maxStages)
	}
	t.cutters = append(t.cutters, cut)
	return nil
}

// readPostProcessor accepts ByteLevel, which changes offsets only, and
// TemplateProcessing of one text with special tokens around it.
func (b *builder) readPostProcessor(stages []stage) error {
	for _, s := range stages {
		switch s.Type {
		case "", "ByteLevel":
		case "TemplateProcessing":
			if err := b.readTemplateProcessing(s); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%q is not supported (have ByteLevel, TemplateProcessing, Sequence)", s.Type)
		}
	}
	return nil
}

// maxAround bounds the tokens that are put around a text.
const maxAround = 64

// readTemplateProcessing reads which special tokens stand before and after a text.
func (b *builder) readTemplateProcessing(s stage) error {
	texts := 0
	var before, after []int32
	for _, part := range s.Single {
		switch {
		case part.Sequence != nil:
			texts++
		case part.SpecialToken != nil:
			token, ok := s.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("special token %q is not among special_tokens", part.SpecialToken.ID)
			}
			if len(before)+len(after)+len(token.IDs) > maxAround {
				return fmt.Errorf("TemplateProcessing adds more than %d tokens", maxAround)
			}
			if texts == 0 {
				before = append(before, token.IDs...)
			} else {
				after = append(after, token.IDs...)
			}
		}
	}
	if texts != 1 {
		return fmt.Errorf("TemplateProcessing of %d texts, want 1", texts)
	}
	if len(before)+len(after)+len(b.t.idsBefore)+len(b.t.idsAfter) > maxAround {
		return fmt.Errorf("TemplateProcessing adds more than %d tokens", maxAround)
	}
	b.t.idsBefore = append(before, b.t.idsBefore...) // a later stage stands around an earlier one
	b.t.idsAfter = append(b.t.idsAfter, after...)
	return nil
}

// readDecoder accepts ByteLevel, alone or in a Sequence, or the decoders of a vocabulary of characters.
func (b *builder) readDecoder(stages []stage) error {
	if b.t.form.ofCharacters {
		return b.readCharDecoder(stages)
	}
	if len(stages) != 1 {
		return fmt.Errorf("a Sequence of %d, want ByteLevel alone", len(stages))
	}
	if kind := stages[0].Type; kind != "ByteLevel" {
		return fmt.Errorf("%q is not supported (have ByteLevel)", kind)
	}
	return nil
}

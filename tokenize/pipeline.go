package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The stages of tokenizer.json around the model. Each can be null, absent, or a
// Sequence.

// kindOfStage returns the "type" of a stage, the empty string for null.
func kindOfStage(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var stage struct{ Type string }
	err := json.Unmarshal(raw, &stage)
	return stage.Type, err
}

// readNormalizer accepts null, NFC, Prepend, Replace and sequences of them.
func (b *builder) readNormalizer(raw json.RawMessage) error {
	kind, err := kindOfStage(raw)
	if err != nil {
		return err
	}
	switch kind {
	case "":
		return nil
	case "NFC":
		b.t.form.steps = append(b.t.form.steps, nfc)
		return nil
	case "Sequence":
		var stage struct{ Normalizers []json.RawMessage }
		return eachOf(raw, &stage, &stage.Normalizers, b.readNormalizer)
	}
	step, err := readStep(kind, raw)
	b.t.form.steps = append(b.t.form.steps, step)
	return err
}

// eachOf decodes a Sequence into stage and reads its parts.
func eachOf(raw json.RawMessage, stage any, parts *[]json.RawMessage, read func(json.RawMessage) error) error {
	if err := json.Unmarshal(raw, stage); err != nil {
		return err
	}
	for _, part := range *parts {
		if err := read(part); err != nil {
			return err
		}
	}
	return nil
}

// readPreTokenizer accepts ByteLevel, alone or after any number of Split and Digits
// stages.
func (b *builder) readPreTokenizer(raw json.RawMessage) error {
	if b.t.form.chars {
		return b.readCharacters(raw)
	}
	byteLevel := false
	if err := b.readCutters(raw, &byteLevel); err != nil {
		return err
	}
	if !byteLevel {
		return errors.New("no ByteLevel at its end: only byte-level vocabularies are supported")
	}
	return nil
}

// addSplit adds the cutter of a Split stage, which has an expression or a text. With
// "invert" the matches are the gaps; both are pieces, so it changes nothing.
func (b *builder) addSplit(expression, text *string) error {
	switch {
	case expression != nil:
		return b.addCutter(*expression)
	case text != nil && *text != "":
		return addStage(b.t, literal(*text))
	}
	return errors.New("a Split has no pattern")
}

// readCutters adds the cutters of a stage and of the stages inside it.
func (b *builder) readCutters(raw json.RawMessage, byteLevel *bool) error {
	kind, err := kindOfStage(raw)
	if err != nil {
		return err
	}
	if *byteLevel {
		return fmt.Errorf("%q after ByteLevel is not supported", kind)
	}
	var stage struct {
		Pretokenizers []json.RawMessage
		Pattern       struct{ Regex, String *string }
		Behavior      string
		Invert        bool
		Individual    bool  `json:"individual_digits"`
		PrefixSpace   bool  `json:"add_prefix_space"`
		UseRegex      *bool `json:"use_regex"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &stage); err != nil {
			return err
		}
	}
	switch kind {
	case "":
		return nil
	case "Sequence":
		for _, part := range stage.Pretokenizers {
			if err := b.readCutters(part, byteLevel); err != nil {
				return err
			}
		}
		return nil
	case "Split":
		if stage.Behavior != "Isolated" {
			return fmt.Errorf("the behavior %q of Split is not supported, only Isolated is", stage.Behavior)
		}
		return b.addSplit(stage.Pattern.Regex, stage.Pattern.String)
	case "Digits":
		if stage.Individual {
			return b.addCutter(`\p{N}`)
		}
		return b.addCutter(`\p{N}+`)
	case "ByteLevel":
		*byteLevel = true
		if stage.PrefixSpace {
			return errors.New("ByteLevel with add_prefix_space is not supported")
		}
		if stage.UseRegex == nil || *stage.UseRegex {
			return b.addCutter(gptPattern)
		}
		return nil
	}
	return fmt.Errorf("%q is not supported (have Split, Digits, ByteLevel, Sequence)", kind)
}

func (b *builder) addCutter(pattern string) error {
	cut, err := newCutter(pattern)
	if err != nil {
		return err
	}
	return addStage(b.t, cut)
}

// maxStages bounds the stages that split a text: each reads all of it.
const maxStages = 64

func addStage(t *Tokenizer, cut cutter) error {
	if len(t.cutters) == maxStages {
		return fmt.Errorf("more than %d stages", maxStages)
	}
	t.cutters = append(t.cutters, cut)
	return nil
}

// readPostProcessor accepts ByteLevel, which changes offsets only, and
// TemplateProcessing of one text with special tokens around it.
func (b *builder) readPostProcessor(raw json.RawMessage) error {
	kind, err := kindOfStage(raw)
	if err != nil {
		return err
	}
	switch kind {
	case "", "ByteLevel":
		return nil
	case "Sequence":
		var stage struct{ Processors []json.RawMessage }
		return eachOf(raw, &stage, &stage.Processors, b.readPostProcessor)
	case "TemplateProcessing":
		return b.readTemplateProcessing(raw)
	}
	return fmt.Errorf("%q is not supported (have ByteLevel, TemplateProcessing, Sequence)", kind)
}

// maxAround bounds the tokens that are put around a text.
const maxAround = 64

func (b *builder) readTemplateProcessing(raw json.RawMessage) error {
	var stage struct {
		Single []struct {
			SpecialToken *struct{ ID string }
			Sequence     *struct{ ID string }
		}
		SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &stage); err != nil {
		return err
	}
	texts := 0
	var before, after []int32
	for _, part := range stage.Single {
		switch {
		case part.Sequence != nil:
			texts++
		case part.SpecialToken != nil:
			token, ok := stage.SpecialTokens[part.SpecialToken.ID]
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
	if len(before)+len(after)+len(b.t.before)+len(b.t.after) > maxAround {
		return fmt.Errorf("TemplateProcessing adds more than %d tokens", maxAround)
	}
	b.t.before = append(before, b.t.before...)
	b.t.after = append(b.t.after, after...)
	return nil
}

// readDecoder accepts ByteLevel, alone or in a Sequence, or the decoders of a
// vocabulary of characters.
func (b *builder) readDecoder(raw json.RawMessage) error {
	if b.t.form.chars {
		return b.readCharDecoder(raw)
	}
	kind, err := kindOfStage(raw)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		return nil
	case "Sequence":
		var stage struct{ Decoders []json.RawMessage }
		if err := eachOf(raw, &stage, &stage.Decoders, b.readDecoder); err != nil {
			return err
		}
		if len(stage.Decoders) != 1 {
			return fmt.Errorf("a Sequence of %d, want ByteLevel alone", len(stage.Decoders))
		}
		return nil
	}
	return fmt.Errorf("%q is not supported (have ByteLevel)", kind)
}

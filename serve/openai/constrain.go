package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"onering/internal/grammar"
	"onering/internal/strict"
	"onering/sampler"
	"onering/tokenize"
)

// A wantedShape is the form that a request asks an answer to have, by one of the names that servers know it by.
type wantedShape struct {
	Format struct {
		Type string `json:"type"`
		JSON struct {
			Schema json.RawMessage `json:"schema"`
			Strict bool            `json:"strict"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Structured   asked           `json:"structured_outputs"` // of vLLM, and the next three before it
	GuidedJSON   json.RawMessage `json:"guided_json"`
	GuidedRegex  *string         `json:"guided_regex"`
	GuidedChoice []string        `json:"guided_choice"`
	Regex        *string         `json:"regex"` // of SGLang
}

// An asked form is one of these, or none.
type asked struct {
	JSON          json.RawMessage `json:"json"` // a schema, or its text
	Regex         *string         `json:"regex"`
	Choice        []string        `json:"choice"`
	Object        bool            `json:"json_object"`
	Grammar       any             `json:"grammar"`        // refused
	StructuralTag any             `json:"structural_tag"` // refused
	strict        bool            // every keyword of the schema has to hold
}

// form returns the form that is asked for, nil for none, and the keywords of its schema that no grammar holds to.
func (a asked) form() (f grammar.Form, unheld []string, err error) {
	forms := 0
	for _, is := range []bool{!isNull(a.JSON), a.Regex != nil, a.Choice != nil, a.Object} {
		if is {
			forms++
		}
	}
	switch {
	case a.Grammar != nil || a.StructuralTag != nil:
		err = errors.New("there is no grammar and no structural_tag: " + noGrammar)
	case forms > 1:
		err = errors.New("it has more than one form")
	case !isNull(a.JSON):
		var quoted string
		if strict.JSON(a.JSON, &quoted) == nil { // the schema's text as a JSON string
			a.JSON = json.RawMessage(quoted)
		}
		return grammar.Schema(a.JSON, a.strict)
	case a.Regex != nil:
		f, err = grammar.Regexp(*a.Regex)
	case a.Choice != nil:
		var words []grammar.Form
		for _, word := range a.Choice {
			words = append(words, grammar.Text(word))
		}
		f = grammar.OneOf(words...)
	case a.Object:
		const exact = true // nothing is left to the model
		return grammar.Schema([]byte(`{"type": "object"}`), exact)
	}
	return f, unheld, err
}

// wantedForm returns the form that a request asks for, nil for none; param is the field that says so, and unheld are
// the keywords of its schema that no grammar holds answers to.
func (s *wantedShape) wantedForm() (f grammar.Form, param string, unheld []string, err error) {
	format := asked{JSON: s.Format.JSON.Schema, strict: s.Format.JSON.Strict, Object: s.Format.Type == "json_object"}
	switch {
	case !slices.Contains([]string{"", "text", "json_object", "json_schema"}, s.Format.Type):
		return nil, "", nil, invalid("response_format", `response_format has the type %q: there are "text", "json_object" and "json_schema"`, s.Format.Type)
	case s.Format.Type == "json_schema" && isNull(format.JSON):
		return nil, "", nil, invalid("response_format", `response_format needs a schema: {"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}`)
	}
	for _, x := range []struct {
		param string
		asked
	}{
		{"response_format", format}, {"structured_outputs", s.Structured}, {"guided_json", asked{JSON: s.GuidedJSON}},
		{"guided_regex", asked{Regex: s.GuidedRegex}}, {"guided_choice", asked{Choice: s.GuidedChoice}}, {"regex", asked{Regex: s.Regex}},
	} {
		form, more, err := x.form()
		switch {
		case err != nil:
			return nil, "", nil, invalid(x.param, "%s: %v", x.param, err)
		case form != nil && f != nil:
			return nil, "", nil, invalid(x.param, "%s and %s both ask for a form of the answer: leave one out", param, x.param)
		case form != nil:
			f, param, unheld = form, x.param, more
		}
	}
	return f, param, unheld, nil
}

// constrain sets the Constraint of a job, which holds its answer to the form that the request asks for: that of
// response_format or its like, or calls of tools with arguments of their schemas, where choice forces them or the
// tools are strict, or either of them. param is the field to name in errors.
func (j *job) constrain(choice toolChoice) error {
	f, param, unheld, err := j.wantedForm()
	if err == nil && j.format != nil && (choice.forces() || f != nil || j.format.Strict) {
		onlyOne := j.onlyFirstCall || choice.name != ""
		callsOnly, textAndCalls, more, why := j.format.Calling(choice.name, onlyOne)
		if why != nil {
			return invalid("tools", "tools: %v", why)
		}
		unheld = append(unheld, more...)
		switch {
		case choice.forces():
			f, param = callsOnly, "tool_choice"
		case f != nil:
			f = grammar.OneOf(f, callsOnly) // an answer of the form, or calls
		default:
			f, param = textAndCalls, "tools"
		}
	}
	switch {
	case err != nil || f == nil:
		return err
	case j.model.Tokenizer == nil:
		return invalid(param, "%s: the model has no tokenizer, so its answers have no form", param)
	case j.MinTokens > 0:
		return invalid("min_tokens", "min_tokens: the form of the answer says where it ends: leave out min_tokens or %s", param)
	}
	insideThought := j.chat && j.model.Tokenizer.NewDecoder().Thoughts(j.prompts[0]).Inside()
	if j.chat && param != "tools" { // textAndCalls allows any text, and so a thought
		f = j.model.behindThought(f, insideThought)
	}
	key, _ := json.Marshal([]any{j.wantedShape, j.toolsText, choice.how, choice.name, j.onlyFirstCall, insideThought}) // all that the form depends on
	g, err := j.model.grammar(string(key), f, unheld)
	if err == nil {
		err = g.Begin().Say(j.continued) // the beginning of the message, which the prompt has, must fit
	}
	if err != nil {
		return invalid(param, "%s: %v", param, err)
	}
	j.options.Constraint = func() sampler.Constraint {
		m := g.Begin()
		_ = m.Say(j.continued) // it fits, as was checked above
		return m
	}
	return nil
}

// behindThought is the form of an answer that has the form f behind a thought: behind the rest of one if the prompt
// ends inside it, else behind a whole one or none if the model has marks of thoughts. A model without them has f alone.
func (m *Model) behindThought(f grammar.Form, inside bool) grammar.Form {
	begins, ends := tokenize.ThoughtMarks[0], tokenize.ThoughtMarks[1]
	blanks := grammar.OneOf(grammar.Text("\n"), grammar.Text(" ")).Repeat(0, 4, grammar.Text(""))
	thoughtThenForm := grammar.Join(grammar.Until(ends), blanks, f)
	id, has := m.Tokenizer.ID(begins)
	switch {
	case inside:
		return thoughtThenForm
	case has && m.Tokenizer.NewDecoder().IsAdded(id):
		return grammar.OneOf(f, grammar.Join(grammar.Text(begins), thoughtThenForm))
	}
	return f
}

// maxGrammars is how many grammars of a model are kept.
const maxGrammars = 16

// grammar returns the Grammar of a form, which is kept under a key: one for each form. It logs the keywords that the
// grammar does not hold answers to when it makes one.
func (m *Model) grammar(key string, f grammar.Form, unheld []string) (*grammar.Grammar, error) {
	m.grammars.Lock()
	defer m.grammars.Unlock()
	if g := m.grammars.known[key]; g != nil {
		return g, nil
	}
	if m.grammars.vocabulary == nil {
		d := m.Tokenizer.NewDecoder()
		token := func(id int32) ([]byte, bool) { return d.Bytes(id), d.IsAdded(id) }
		m.grammars.vocabulary = grammar.NewVocabulary(m.Vocab, token, m.EOS)
	}
	g, err := m.grammars.vocabulary.Grammar(f)
	if err != nil {
		return nil, err
	}
	if len(unheld) > 0 {
		slog.Info(fmt.Sprintf("what these keywords of a schema ask for is left to the model: %q; \"strict\": true refuses them", unheld))
	}
	if m.grammars.known == nil || len(m.grammars.known) >= maxGrammars { // when they are too many, all are forgotten
		m.grammars.known = map[string]*grammar.Grammar{}
	}
	m.grammars.known[key] = g
	return g, nil
}

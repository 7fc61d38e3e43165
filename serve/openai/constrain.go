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

// A shape is the form that a request asks an answer to have, by one of the names that servers know it by.
type shape struct {
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
	JSON   json.RawMessage `json:"json"` // a schema, or its text
	Regex  *string         `json:"regex"`
	Choice []string        `json:"choice"`
	Object bool            `json:"json_object"`
	None   any             `json:"grammar"`        // refused
	Never  any             `json:"structural_tag"` // refused
	exact  bool            // every keyword of the schema has to hold
}

// form returns the form that is asked for, nil for none, and the keywords of its schema that no grammar holds
// to.
func (a asked) form() (f grammar.Form, left []string, err error) {
	given := 0
	for _, is := range []bool{!isNull(a.JSON), a.Regex != nil, a.Choice != nil, a.Object} {
		if is {
			given++
		}
	}
	switch {
	case a.None != nil || a.Never != nil:
		err = errors.New("there is no grammar and no structural_tag: " + noGrammar)
	case given > 1:
		err = errors.New("it has more than one form")
	case !isNull(a.JSON):
		var quoted string
		if strict.JSON(a.JSON, &quoted) == nil {
			a.JSON = json.RawMessage(quoted)
		}
		return grammar.Schema(a.JSON, a.exact)
	case a.Regex != nil:
		f, err = grammar.Regexp(*a.Regex)
	case a.Choice != nil:
		var words []grammar.Form
		for _, word := range a.Choice {
			words = append(words, grammar.Text(word))
		}
		f = grammar.OneOf(words...)
	case a.Object:
		return grammar.Schema([]byte(`{"type": "object"}`), true)
	}
	return f, left, err
}

// wantedForm returns the form that a request asks for, nil for none; param is the field that says so, and left the
// keywords of its schema that no grammar holds to.
func (s *shape) wantedForm() (f grammar.Form, param string, left []string, err error) {
	format := asked{JSON: s.Format.JSON.Schema, exact: s.Format.JSON.Strict, Object: s.Format.Type == "json_object"}
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
			f, param, left = form, x.param, more
		}
	}
	return f, param, left, nil
}

// constrain holds the answer of a job to the form that its request asks for: that of the
// answer, and calls of tools with arguments of their schemas.
func (j *job) constrain(choice toolChoice) error {
	f, param, left, err := j.wantedForm()
	if err == nil && j.format != nil && (choice.forces() || f != nil || j.format.Strict) {
		only, free, more, why := j.format.Calling(choice.name, j.onlyFirstCall || choice.name != "")
		if why != nil {
			return invalid("tools", "tools: %v", why)
		}
		left = append(left, more...)
		switch {
		case choice.forces():
			f, param = only, "tool_choice"
		case f != nil:
			f = grammar.OneOf(f, only)
		default:
			f, param = free, "tools"
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
	thinks := j.chat && j.model.Tokenizer.NewDecoder().Thoughts(j.prompts[0]).Inside()
	if j.chat && param != "tools" {
		f = j.model.behindThought(f, thinks)
	}
	key, _ := json.Marshal([]any{j.shape, j.toolsText, choice.how, choice.name, j.onlyFirstCall, thinks})
	g, err := j.model.grammar(string(key), f, left)
	if err == nil {
		err = g.Begin().Say(j.continued)
	}
	if err != nil {
		return invalid(param, "%s: %v", param, err)
	}
	j.options.Constraint = func() sampler.Constraint {
		m := g.Begin()
		_ = m.Say(j.continued) // it was said before
		return m
	}
	return nil
}

// behindThought is the form of an answer with a thought before it: in a prompt that ends inside
// one, and, as the model likes, in one of a model that has marks for it.
func (m *Model) behindThought(f grammar.Form, inside bool) grammar.Form {
	begins, ends := tokenize.ThoughtMarks[0], tokenize.ThoughtMarks[1]
	blanks := grammar.OneOf(grammar.Text("\n"), grammar.Text(" ")).Repeat(0, 4, grammar.Text(""))
	behind := grammar.Join(grammar.Until(ends), blanks, f)
	id, has := m.Tokenizer.ID(begins)
	switch {
	case inside:
		return behind
	case has && m.Tokenizer.NewDecoder().IsAdded(id):
		return grammar.OneOf(f, grammar.Join(grammar.Text(begins), behind))
	}
	return f
}

// maxGrammars is how many grammars of a model are kept.
const maxGrammars = 16

// grammar returns the Grammar of a form, which is kept under a key.
func (m *Model) grammar(key string, f grammar.Form, left []string) (*grammar.Grammar, error) {
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
	if len(left) > 0 {
		slog.Info(fmt.Sprintf("what these keywords of a schema ask for is left to the model: %q; \"strict\": true refuses them", left))
	}
	if m.grammars.known == nil || len(m.grammars.known) >= maxGrammars {
		m.grammars.known = map[string]*grammar.Grammar{}
	}
	m.grammars.known[key] = g
	return g, nil
}

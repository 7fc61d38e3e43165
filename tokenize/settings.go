package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/tokenize/jinja"
)

// TemplateSettings name a template and state changes to it.
type TemplateSettings struct {
	Template string   `toml:"template" help:"what turns a problem into a prompt: qwen_math, r1, no, chat (the template of the model's tokenizer), a text with {problem} and columns such as {choices} in it, auto: chat for a prompt that is a list of messages, qwen_math for a text, or concat: chat for messages, and a text alone"`
	System   string   `toml:"system" help:"system message of the template chat"`
	Args     ArgTexts `toml:"template_args" help:"names that the template chat reads, each name=value such as enable_thinking=false with JSON or a text as the value; in a run file also a table"`
	Stop     []string `toml:"stop" help:"text that ends a response, besides the end-of-sequence token, and is part of it; instead of the template's"`
}

// PromptTemplate returns the template that s describes. Its errors are joined
// *settings.Errors.
func (s TemplateSettings) PromptTemplate() (Template, error) {
	var errs settings.Errors
	t, err := ParseTemplate(s.Template)
	errs.Want("template", s.Template, err == nil, "must be one of "+strings.Join(Templates(), ", ")+
		", or a text with {problem} in it, once"+settings.DidYouMean(s.Template, Templates()))
	errs.Want("system", s.System, s.System == "" || t.Chat, "goes with the template chat; other templates are written with theirs")
	errs.Want("template_args", s.Args, len(s.Args) == 0 || t.Chat || err != nil, "goes with the template chat; other templates read no names")
	errs.Want("stop", s.Stop, !slices.Contains(s.Stop, ""), "must not hold an empty text, which ends nothing")
	t.System, t.Args = s.System, s.Args
	if _, err := s.Args.Parse(); err != nil {
		errs.Want("template_args", s.Args, false, err.Error())
	}
	if len(s.Stop) > 0 {
		t.Stops = s.Stop
	}
	return t, errors.Join(errs...)
}

// ArgTexts are the arguments of a chat template as settings state them: name=value, where the value is JSON if it is
// valid JSON, else a text. Python's True, False and None count as JSON's. A run file may also state a table.
type ArgTexts []string

// UnmarshalTOML takes a list of strings, or a table.
func (a *ArgTexts) UnmarshalTOML(v any) error {
	var texts []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			text, ok := e.(string)
			if !ok {
				return fmt.Errorf("%v is not a text", e)
			}
			texts = append(texts, text)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text, err := argText(v[name])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			texts = append(texts, name+"="+text)
		}
	default:
		return fmt.Errorf("%v is neither a table nor a list", v)
	}
	*a = texts
	return nil
}

// argText writes a value of a table so that argValue reads it.
func argText(v any) (string, error) {
	if s, ok := v.(string); ok && argValue(s) == jinja.Value(s) {
		return s, nil
	}
	text, err := json.Marshal(v)
	if err != nil || !isPlain(v) {
		return "", errors.New("want a text, number, true, false, list or table")
	}
	return string(text), nil
}

// isPlain reports whether a value of a run file can be written as JSON.
func isPlain(v any) bool {
	switch v := v.(type) {
	case nil, bool, int, int64, float64, string:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !isPlain(e) })
	case map[string]any:
		return isPlain(slices.Collect(maps.Values(v)))
	}
	return false
}

// argValue reads the value of an argument.
func argValue(text string) jinja.Value {
	switch text {
	case "True", "False":
		return text == "True"
	case "None":
		return nil
	}
	if v, err := jinja.FromJSON([]byte(text)); err == nil {
		return v
	}
	return text
}

// Parse reads the arguments.
func (a ArgTexts) Parse() (TemplateArgs, error) {
	if len(a) == 0 {
		return TemplateArgs{}, nil
	}
	names := jinja.NewDict()
	for _, text := range a {
		name, value, ok := strings.Cut(text, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return TemplateArgs{}, fmt.Errorf("must be name=value, such as enable_thinking=false, not %q", text)
		}
		if slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, name) {
			return TemplateArgs{}, fmt.Errorf("cannot hold %s: it is not the same for all problems", name)
		}
		names.Set(name, argValue(strings.TrimSpace(value)))
	}
	return TemplateArgs{names}, nil
}

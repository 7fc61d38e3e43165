package tokenize

import (
	"errors"
	"slices"
	"strings"

	"onering/settings"
)

// TemplateSettings name a template and say what to change in it.
type TemplateSettings struct {
	Template string   `toml:"template" help:"what turns a problem into a prompt: qwen_math, r1, no, chat (the template of the model's tokenizer), or a text with {problem} in it"`
	System   string   `toml:"system" help:"system message of the template chat"`
	Stop     []string `toml:"stop" help:"text that ends a response, besides the end-of-sequence token, and is part of it; instead of the template's"`
}

// PromptTemplate returns the template that s describes. Its errors are joined
// *settings.Errors.
func (s TemplateSettings) PromptTemplate() (Template, error) {
	var errs []error
	t, err := ParseTemplate(s.Template)
	if err != nil {
		errs = append(errs, &settings.Error{
			Key: "template", Value: s.Template,
			Remedy: "must be one of " + strings.Join(Templates(), ", ") + ", or a text with {problem} in it, once",
		})
	}
	if s.System != "" && !t.Chat {
		errs = append(errs, &settings.Error{Key: "system", Value: s.System, Remedy: "goes with the template chat; other templates are written with theirs"})
	}
	if slices.Contains(s.Stop, "") {
		errs = append(errs, &settings.Error{Key: "stop", Value: s.Stop, Remedy: "must not hold an empty text, which ends nothing"})
	}
	t.System = s.System
	if len(s.Stop) > 0 {
		t.Stops = s.Stop
	}
	return t, errors.Join(errs...)
}

package export

import (
	_ "embed"
	"fmt"
	"strings"

	"onering/models"
)

//go:embed meaning.txt
var meaningText string

// purposes says what each Program computes, and meanings what each port holds, by the first
// word of its Program's name and its own name.
var purposes, meanings = said("graph "), said("port ")

// said reads the lines of meaning.txt that begin with a word.
func said(word string) map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(meaningText) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			name, text, _ := strings.Cut(rest, ": ")
			texts[name] = strings.TrimSpace(text)
		}
	}
	return texts
}

// nameWithoutForm removes the form from the name of a Program.
func nameWithoutForm(name string) string {
	for _, form := range models.Forms {
		name = strings.TrimSuffix(name, form.Suffix())
	}
	return name
}

// describe says what a port of a Program holds. It is an error if meaning.txt does not say.
func describe(program string, p models.Port, output bool) (string, error) {
	switch p.Role {
	case models.Parameter:
		return "a weight, see weights in the manifest", nil
	case models.Gradient:
		if output {
			return "its sum with this micro-batch's gradient", nil
		}
		return "the running gradient of " + p.Of + ", 0 before the first micro-batch", nil
	case models.Keys, models.Values:
		what := fmt.Sprintf("the cached %s of layer %d", map[models.Role]string{models.Keys: "keys", models.Values: "values"}[p.Role], p.Layer)
		if output {
			return what + " with the new tokens", nil
		}
		return what + ", any finite numbers where no token is", nil
	case models.Window, models.Memory:
		what := fmt.Sprintf("the last inputs of the convolution of layer %d, the oldest first", p.Layer)
		if p.Role == models.Memory {
			what = fmt.Sprintf("the state of the delta rule of layer %d", p.Layer)
		}
		if output {
			return what + ", with the new tokens", nil
		}
		return what, nil
	}
	family, _, _ := strings.Cut(nameWithoutForm(program), ".")
	name, kind, further := strings.Cut(p.Name, ".kind") // see models.OfKind
	text := meanings[family+"."+name]
	if further && text != "" {
		text += ", for layers of kind " + kind
	}
	if text == "" {
		return "", fmt.Errorf("export: nothing says what port %q of %s holds", p.Name, program)
	}
	return text, nil
}

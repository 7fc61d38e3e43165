package cmd

import (
	"strings"

	"github.com/spf13/cobra"

	"onering/tokenize"
)

// templateFlags say what prompt to make of a problem.
type templateFlags struct {
	template, system string
	stops            []string
}

func (f *templateFlags) register(c *cobra.Command, template string) {
	flags := c.Flags()
	flags.StringVar(&f.template, "template", template, "prompt template: "+strings.Join(tokenize.Templates(), ", ")+", or a text with {problem} in it")
	flags.StringVar(&f.system, "system", "", "system message of the template chat")
	must(c.RegisterFlagCompletionFunc("template", completeTemplates))
}

// registerStops adds --stop, for commands that sample.
func (f *templateFlags) registerStops(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.stops, "stop", nil, "text that ends a response, instead of the template's; repeatable")
}

// parse returns the template that the flags describe.
func (f *templateFlags) parse() (tokenize.Template, error) {
	t, err := tokenize.ParseTemplate(f.template)
	if err != nil {
		return t, usageError{err}
	}
	if f.system != "" && !t.Chat {
		return t, usagef("--system goes with --template chat; other templates are written with theirs")
	}
	t.System = f.system
	for _, s := range f.stops {
		if s == "" {
			return t, usagef("--stop: an empty text ends nothing")
		}
	}
	if len(f.stops) > 0 {
		t.Stops = f.stops
	}
	return t, nil
}

func completeTemplates(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return tokenize.Templates(), cobra.ShellCompDirectiveNoFileComp
}

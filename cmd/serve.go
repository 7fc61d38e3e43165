package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/files"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/serve"
	"onering/serve/openai"
	"onering/train/rl"
)

type serveOptions struct {
	Addr       string        `help:"address to listen on; PORT is localhost:PORT"`
	Name       string        `help:"what requests call the model; default: the last part of --model"`
	APIKeyEnv  string        `flag:"api-key-env" help:"environment variable with the key that requests must have"`
	LoRARoot   string        `flag:"lora-root" help:"folder whose adapters requests may load, as with vLLM" complete:"dir"`
	CORS       []string      `flag:"cors" split:"," help:"web page whose scripts may ask, such as https://example.org, or * for all; repeatable"`
	Share      bool          `flag:"share-prefixes" help:"let requests continue the prompts of other API keys, which then see by the time that another asked the same"`
	Queue      int           `range:"[0,1048576]" help:"responses that may wait for a slot"`
	Context    int           `range:"[2,16777216]" help:"most tokens of a prompt and its response, if the model has as many positions"`
	MaxTokens  int           `range:"[1,16777216]" help:"most tokens of a response that a request may ask for, and what a chat has that does not ask"`
	Drain      time.Duration `help:"how long requests that have begun may go on after a signal"`
	Generation bool          `flag:"generation-config" help:"take the temperature and the filters that nothing states from the model's generation_config.json"`
	adapters
	settings  *commandSettings
	byAdapter map[string]*resolved // settings by the adapter's name, "" for the model alone
}

// newServe makes the command serve, which answers requests over HTTP.
func newServe() *cobra.Command {
	o := serveOptions{Addr: "localhost:8000", Queue: 64, Context: 8192, MaxTokens: 8192, Drain: time.Minute, Generation: true}
	o.settings = modelSettings(func(config *rl.Config) {
		config.Model.Template, config.Rollout.Slots, config.Rollout.Invariant = "chat", 16, true
	}, append(samplingPaths, "rollout.max_new_tokens")...)
	c := newCommand("serve", &o, func(c *cobra.Command, _ []string) (err error) {
		if err := o.adapters.parse(); err != nil {
			return err
		}
		if o.byAdapter, err = o.adapters.resolve(c, o.settings); err != nil {
			return err
		}
		key, err := o.validate()
		if err != nil {
			return err
		}
		// Listen before the model is read, so that a taken address is reported at once.
		listener, err := net.Listen("tcp", o.Addr)
		if err != nil {
			return fmt.Errorf("--addr %s: %w", o.Addr, err)
		}
		defer listener.Close()
		ctx, _, stop := cli.CatchSignals(c.Context())
		defer stop()
		o.settings.samplesOnly = o.LoRARoot == "" // a head in lora.base_dtype is not the one that later adapters were trained with
		p, err := o.byAdapter[""].open(c, o.byName)
		if err != nil {
			return err
		}
		defer p.Close()
		return o.serve(ctx, c, listener, p, key)
	})
	o.settings.addModelFlags(c, append(templateKeys, "rollout.slots", "rollout.invariant")...)
	o.settings.moreSources = append(o.settings.moreSources, o.asSource)
	return c
}

// validate refuses impossible flags, completes --addr, and returns the key that --api-key-env names.
func (o *serveOptions) validate() (key string, err error) {
	if o.Drain < 0 {
		return "", usagef("--drain %v: must be at least 0", o.Drain)
	}
	if o.LoRARoot != "" {
		if info, err := os.Stat(o.LoRARoot); err != nil || !info.IsDir() {
			return "", usagef("--lora-root %s: there is no such folder", o.LoRARoot)
		}
	}
	if o.Addr, err = serve.Address(o.Addr); err != nil {
		return "", usagef("--addr %q: write localhost:PORT", o.Addr)
	}
	return keyOf(o.APIKeyEnv)
}

// keyOf returns the key that an environment variable holds; "" if none is named.
func keyOf(variable string) (key string, err error) {
	if variable == "" {
		return "", nil
	}
	if key = strings.TrimSpace(os.Getenv(variable)); key == "" {
		err = usagef("--api-key-env %s: the environment variable is not set", variable)
	}
	return key, err
}

// models opens the models of the server: the model, and its adapters by name. After an error none stays open.
func (o *serveOptions) models(p *policy.Policy) (list []*openai.Model, err error) {
	model := cmp.Or(o.Name, filepath.Base(filepath.Clean(o.byAdapter[""].modelAsNamed)))
	for _, adapter := range append([]string{""}, p.Names()...) { // "" is the model alone
		policy, err := p.With(adapter)
		name, parent := model, ""
		if adapter != "" {
			name, parent = adapter, model
		}
		if err == nil && adapter == model {
			err = usagef("--adapter %s: the model has that name, too: give it another with --name", adapter)
		}
		var m *openai.Model
		if err == nil {
			m, err = o.open(policy, o.byAdapter[adapter], name, parent)
		}
		if err != nil {
			closeModels(list)
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// closeModels closes models that the server did not take.
func closeModels(list []*openai.Model) {
	for _, m := range list {
		m.Close()
	}
}

// open opens a model of the server or, if parent is not "", an adapter beside the model of that name, with a decoder
// of its own. settings are those of the model or the adapter; the slots and the invariance are the model's for all.
func (o *serveOptions) open(p *policy.Policy, settings *resolved, name, parent string) (m *openai.Model, err error) {
	m = &openai.Model{Name: name, Parent: parent, Tokenizer: p.Tokenizer, Template: settings.prompt, EOS: p.Model.EOS, Vocab: p.Model.Vocab}
	if m.Sampling, err = settings.sampling(p, samplingOptions{Generation: o.Generation}); err == nil {
		if !settings.Stated("rollout.max_new_tokens") {
			m.Sampling.MaxNewTokens = 0 // as many as a request may ask for
		}
		r := o.byAdapter[""].Rollout
		m.Decoder, m.Close, err = p.Decoder(r.Slots, o.Context, ifAsked(r.Invariant, sampler.InvariantToNeighbours))
	}
	if err == nil {
		m.Kept = m.Decoder.MaxTokens() * max(1, o.byAdapter[""].Rollout.Slots/8) // as many tokens as an eighth of the slots hold
	}
	return m, err
}

// loader returns the function that opens an adapter which a request names: the folder path under --lora-root, to be
// called name. model is the name of the model that it adapts. loader returns nil without that flag.
func (o *serveOptions) loader(c *cobra.Command, p *policy.Policy, model string) func(name, path string) (*openai.Model, error) {
	if o.LoRARoot == "" {
		return nil
	}
	return func(name, path string) (*openai.Model, error) {
		dir, err := files.Under(o.LoRARoot, path)
		if err != nil {
			return nil, err
		}
		ofAdapter, err := o.settings.resolveAdapter(c, dir, o.byAdapter[""]) // "": the model's, for an adapter without a run
		if err != nil {
			return nil, err
		}
		policy, err := p.WithAdapter(dir)
		if err != nil {
			return nil, err
		}
		m, err := o.open(policy, ofAdapter, name, model)
		if err != nil {
			policy.Close()
			return nil, err
		}
		closeDecoder := m.Close
		m.Close = func() { closeDecoder(); policy.Close() }
		return m, nil
	}
}

// serve answers requests, which need the key unless it is "", until ctx ends, and then completes those that have
// begun.
func (o *serveOptions) serve(ctx context.Context, c *cobra.Command, listener net.Listener, p *policy.Policy, key string) error {
	models, err := o.models(p)
	if err != nil {
		return err
	}
	answers, err := openai.New(openai.Options{Models: models, MaxTokens: o.MaxTokens, Queue: o.Queue, Key: key, Origins: o.CORS, SharePrefixes: o.Share,
		Load:  o.loader(c, p, models[0].Name),
		Fatal: func(err error) bool { return errors.Is(err, runtime.ErrLost) }})
	if err != nil {
		closeModels(models)
		return err
	}
	server := serve.NewServer(answers.Handler(), listener.Addr(), key != "",
		"anyone who reaches this address can use the model; --api-key-env asks for a key", slog.Default())
	// Decoding goes on after ctx has ended, since the requests that have begun need it.
	decoding, stopDecoding := context.WithCancel(context.WithoutCancel(ctx))
	failed, ended := make(chan error, 2), make(chan struct{}) // 2: of decoding and of the server
	go func() {
		if err := answers.Run(decoding); err != nil {
			failed <- err
		}
		close(ended)
	}()
	defer func() {
		stopDecoding()
		<-ended
	}()
	go func() { failed <- server.Serve(listener) }()
	var names []string
	for _, m := range models {
		names = append(names, m.Name)
	}
	slog.Info("serving", "url", "http://"+listener.Addr().String()+"/v1", "models", names)
	select {
	case err := <-failed:
		return errors.Join(err, o.stop(server))
	case <-ctx.Done():
	}
	return o.stop(server)
}

// stop takes no more requests, and waits for those that have begun, at most for --drain; then it cuts them.
func (o *serveOptions) stop(server *http.Server) error {
	slog.Info("stopping: requests that have begun may go on", "for", o.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), o.Drain)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		server.Close()
		return fmt.Errorf("requests were cut that had not ended within --drain %v", o.Drain)
	}
	return err
}

package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// settings are the values of the environment variables.
type settings struct {
	home        string   // HF_HOME
	cache       string   // the folder "hub"
	endpoint    *url.URL // without a slash at the end
	token       string   // may be empty
	tokenSource string   // the variable or file of the token, for messages
	offline     bool
}

const defaultEndpoint = "https://huggingface.co"

// readSettings reads the variables that the Python client reads, with its defaults.
func readSettings(o Options) (settings, error) {
	var s settings
	env := func(names ...string) string {
		for _, n := range names {
			if v := o.Getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	expand := func(path string) (string, error) {
		path = os.Expand(path, o.Getenv)
		if path == "~" || strings.HasPrefix(path, "~/") {
			h := env("HOME", "USERPROFILE")
			if h == "" {
				var err error
				if h, err = os.UserHomeDir(); err != nil {
					return "", fmt.Errorf("hub: %w", err)
				}
			}
			return filepath.Join(h, path[1:]), nil
		}
		return filepath.Clean(path), nil
	}
	base, err := expand(cmp.Or(env("HF_HOME"), filepath.Join(cmp.Or(env("XDG_CACHE_HOME"), "~/.cache"), "huggingface")))
	if err != nil {
		return s, err
	}
	s.home, s.cache = base, filepath.Join(base, "hub")
	if c := env("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); c != "" {
		if s.cache, err = expand(c); err != nil {
			return s, err
		}
	}
	s.offline = o.Offline || isTrue(env("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))

	s.endpoint, err = url.Parse(strings.TrimRight(cmp.Or(env("HF_ENDPOINT"), defaultEndpoint), "/"))
	if err != nil || s.endpoint.Host == "" || s.endpoint.Scheme != "https" && s.endpoint.Scheme != "http" || s.endpoint.User != nil {
		// The value may hold a password, so the message does not repeat it.
		return s, errors.New("hub: HF_ENDPOINT must be an address such as https://huggingface.co, without a user name")
	}
	err = s.readToken(base, env, expand)
	return s, err
}

// readToken finds the token: a variable, or a file below base.
func (s *settings) readToken(base string, env func(...string) string, expand func(string) (string, error)) (err error) {
	s.token, s.tokenSource = strings.TrimSpace(env("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")), "HF_TOKEN"
	if s.token == "" && !isTrue(env("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		s.tokenSource = filepath.Join(base, "token")
		if p := env("HF_TOKEN_PATH"); p != "" {
			if s.tokenSource, err = expand(p); err != nil {
				return err
			}
		}
		text, err := os.ReadFile(s.tokenSource)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hub: the token: %w", err)
		}
		s.token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(s.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("hub: the token in %s has characters that a token cannot have", s.tokenSource)
	}
	return nil
}

func isTrue(value string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(value))
}

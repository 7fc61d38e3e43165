// Package remote has what clients of the user's servers share: addresses, tokens, and rules for redirects.
package remote

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"onering/internal/settings"
)

// CheckAddress returns a *settings.Error of a key if an address of a server is not valid, or holds a user, a password
// or a fragment. example is a valid one. The error shows no password.
func CheckAddress(key, address, example string) error {
	u, err := url.Parse(address)
	remedy := ""
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		remedy = "must be an address such as " + example
	case u.User != nil:
		remedy = "must not hold a user or password: the run folder would, too; use token_env"
	case u.Fragment != "":
		remedy = "must not have a fragment"
	default:
		return nil
	}
	shown := "..."
	if err == nil {
		if u.User != nil {
			u.User = url.User("...")
		}
		shown = u.String()
	}
	return &settings.Error{Key: key, Value: shown, Remedy: remedy}
}

// nameInCapitals matches names of variables, and not tokens.
var nameInCapitals = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// CheckTokenEnv returns an error if token_env is not the name of a variable.
func CheckTokenEnv(name string) error {
	if name == "" || nameInCapitals.MatchString(name) {
		return nil
	}
	return &settings.Error{Key: "token_env", Value: "...",
		Remedy: "must be the name of an environment variable in capitals, such as JUDGE_TOKEN, and not the token"}
}

// Token returns the bearer token that an environment variable holds, "" if none is named.
// section is the section of token_env, for messages.
func Token(section, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	token := strings.TrimSpace(os.Getenv(name))
	if token == "" {
		return "", fmt.Errorf("%s.token_env: the environment variable %s is not set", section, name)
	}
	return token, nil
}

// A RedirectError is about a redirect that is not followed.
type RedirectError string

func (e RedirectError) Error() string { return string(e) }

// sameServer is the CheckRedirect of a client that follows redirects only on the same
// server: requests and the token are for no other.
func sameServer(r *http.Request, via []*http.Request) error {
	switch asked := via[0].URL; {
	case r.URL.Scheme != asked.Scheme || r.URL.Host != asked.Host:
		return RedirectError(fmt.Sprintf("it redirects to another server, %s://%s: set url to that", r.URL.Scheme, r.URL.Host))
	case r.Method != via[0].Method:
		return RedirectError(fmt.Sprintf("it redirects to %s with a status that turns POST into GET: set url to that", r.URL.Path))
	case len(via) > 5:
		return RedirectError("it redirects without end")
	}
	return nil
}

// Client returns a client that sends the Token of a section, if there is one, with each
// request, and limits the size of answers.
func Client(section, tokenEnv string, most int64) (*http.Client, error) {
	token, err := Token(section, tokenEnv)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.MaxIdleConns = 4096, 0
	return &http.Client{CheckRedirect: sameServer, Transport: &bearer{transport, token, most}}, err
}

// An unreachable error says in plain words that there is no connection.
type unreachable struct {
	error
	text string
}

func (e unreachable) Error() string { return e.text }

func (e unreachable) Unwrap() error { return e.error }

// Plain returns an error of a connection with what may help, in plain words, and other errors as they are.
func Plain(err error) error {
	if of, ok := err.(*url.Error); ok {
		return &url.Error{Op: of.Op, URL: of.URL, Err: Plain(of.Err)}
	}
	host, unknown := errors.AsType[*net.DNSError](err)
	failed, is := errors.AsType[*net.OpError](err)
	switch {
	case unknown:
		return unreachable{err, fmt.Sprintf("there is no host %s here: no network, or a wrong name", host.Name)}
	case is && failed.Addr != nil:
		why := failed.Err
		if call, ok := errors.AsType[*os.SyscallError](why); ok {
			why = call.Err
		}
		return unreachable{err, fmt.Sprintf("no connection with %s (%v): no network, or no server there", failed.Addr, why)}
	}
	return err
}

type bearer struct {
	*http.Transport
	token string
	most  int64
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", "onering")
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	response, err := b.Transport.RoundTrip(r)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = http.MaxBytesReader(nil, response.Body, b.most)
	}
	return response, Plain(err)
}

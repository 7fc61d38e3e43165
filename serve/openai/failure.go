package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// A failure is an error in the form of OpenAI's API.
type failure struct {
	status  int
	message string
	kind    string // "type" in JSON
	param   string
	code    string
}

func (f *failure) Error() string { return f.message }

// MarshalJSON writes {"error": ...}; empty fields are null.
func (f *failure) MarshalJSON() ([]byte, error) {
	null := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(map[string]body{"error": {f.message, f.kind, null(f.param), null(f.code)}})
}

// invalid is a mistake of the request, in a field.
func invalid(param, format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, fmt.Sprintf(format, args...), "invalid_request_error", param, ""}
}

var (
	errFull     = &failure{http.StatusTooManyRequests, "the server has as many requests as it holds: try again later", "rate_limit_error", "", "queue_full"}
	errStopping = &failure{http.StatusServiceUnavailable, "the server is stopping", "server_error", "", "stopping"}
	errTooLarge = &failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody), "invalid_request_error", "", ""}
	errSlow     = &failure{http.StatusRequestTimeout, "the body did not come to its end", "invalid_request_error", "", ""}
	errKey      = &failure{http.StatusUnauthorized, "the API key is missing or wrong: send it as Authorization: Bearer KEY", "authentication_error", "", "invalid_api_key"}
	errNoJSON   = &failure{http.StatusUnsupportedMediaType, "the body must be of Content-Type application/json", "invalid_request_error", "", ""}
)

// failureOf returns err in the form of the API.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{http.StatusInternalServerError, err.Error(), "server_error", "", ""}
}

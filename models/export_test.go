package models

// WithDType is what Save writes as config.json.
var WithDType = withDType

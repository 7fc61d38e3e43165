package objectives

// Rules of advantages, and their names.
var (
	Standardized, LeaveOneOut = standardized, leaveOneOut
	AdvantageRules            = advantageRules
)

"""Screenshots of the documentation: the playground, a report and `headgate top`, each of real decisions."""
